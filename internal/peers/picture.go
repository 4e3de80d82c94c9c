package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// What the picture shows: for each group, how many events a second go from
// publish to ack.
var pictured = []struct{ group, workload, title string }{
	{"memory", streamOne, "In memory: events a second from publish to ack, one publisher, one member"},
	{"jetstream", streamBatch, "NATS JetStream: the same, as fast as one caller can publish"},
}

// Sizes of the picture, in pixels.
const (
	pictureWidth = 760
	labelWidth   = 210
	barHeight    = 18
	barGap       = 8
	titleHeight  = 30
	valueWidth   = 90
)

// The colours are those of the page around it, light or dark.
const pictureStyle = `
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .bar { fill: #8c959f; }
  .ours { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .bar { fill: #6e7681; }
    .ours { fill: #4493f8; }
  }
`

// A bar is one system's.
type bar struct {
	label string
	value float64
	text  string
	ours  bool
}

// svg draws the bars of what was measured.
func (r *results) svg() string {
	var body strings.Builder
	y := 0
	for _, p := range pictured {
		bars := r.bars(p.group, p.workload)
		if len(bars) == 0 {
			continue
		}
		y = draw(&body, y, p.title, bars) + titleHeight/2
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>Events a second, beside other libraries</title>
<style>%s</style>
%s</svg>
`, pictureWidth, y, pictureWidth, y, pictureStyle, body.String())
}

// bars are those of a group. What moves values in a channel is left out: beside
// it nothing could be told apart.
func (r *results) bars(group, workload string) []bar {
	var bars []bar
	for _, s := range systems {
		rate := r.rate(s.name, workload)
		if s.group != group || rate == 0 || s.name == "Go channel" {
			continue
		}
		bars = append(bars, bar{s.name, rate, perSecond(rate), strings.HasPrefix(s.name, "catchment")})
	}
	return bars
}

// draw writes bars below y, and returns where they end.
func draw(b *strings.Builder, y int, title string, bars []bar) int {
	most := 0.0
	for _, bar := range bars {
		most = max(most, bar.value)
	}
	fmt.Fprintf(b, "<text class=\"title\" x=\"0\" y=\"%d\">%s</text>\n", y+titleHeight/2, escaped(title))
	y += titleHeight
	for _, bar := range bars {
		class := "bar"
		if bar.ours {
			class = "bar ours"
		}
		width := max(bar.value/most*(pictureWidth-labelWidth-valueWidth), 1)
		middle := y + barHeight - 5
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", labelWidth-8, middle, escaped(bar.label))
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>", class, labelWidth, y, width, barHeight)
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", labelWidth+width+8, middle, escaped(bar.text))
		y += barHeight + barGap
	}
	return y
}

func escaped(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	return b.String()
}
