package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	for name, r := range map[string]*results{"full": fixed(), "empty": newResults()} {
		svg := r.svg()
		d := xml.NewDecoder(strings.NewReader(svg))
		bars := 0
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, svg)
			}
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
				bars++
			}
		}
		want := 0
		if name == "full" {
			for _, s := range systems {
				if (s.group == "memory" || s.group == "jetstream") && s.name != "Go channel" {
					want++
				}
			}
		}
		if bars != want {
			t.Errorf("%s: %d bars, want %d:\n%s", name, bars, want, svg)
		}
		if !strings.Contains(svg, "prefers-color-scheme: dark") {
			t.Errorf("%s: no colours for a dark page", name)
		}
	}
}
