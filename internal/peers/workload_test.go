package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWorkloads(t *testing.T) {
	m := startMachine(t)
	for _, s := range systems {
		for _, w := range workloads {
			t.Run(s.name+"/"+w.name, func(t *testing.T) {
				got, err := m.measure(t.Context(), s, w, 100)
				if errors.Is(err, errNotOffered) {
					if strings.HasPrefix(s.name, "catchment") {
						t.Error(err)
					}
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				if w.name == latency {
					if len(got.waits) == 0 || got.waits[0] <= 0 {
						t.Errorf("no waits: %+v", got)
					}
				} else if got.events != 100 || got.took <= 0 {
					t.Errorf("measured %+v", got)
				}
			})
		}
	}
}

func TestSystemsDeliver(t *testing.T) {
	m := startMachine(t)
	for i, s := range systems {
		for _, stored := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stored=%v", s.name, stored), func(t *testing.T) {
				name := fmt.Sprintf("deliver-%d-%v", i, stored)
				l, err := s.open(t.Context(), site{name: name, url: m.url, dir: t.TempDir(), stored: stored})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := l.close(); err != nil {
						t.Error(err)
					}
				}()
				if l.publish == nil || l.subscribe == nil {
					t.Skip("not offered")
				}
				f := newFeed(50)
				want := slices.Clone(f.ids)
				published := make(chan error, 1)
				if stored {
					published <- l.publishAll(t.Context(), f, true)
				}
				member, err := l.subscribe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if !stored {
					go func() { published <- l.publishAll(t.Context(), f, true) }()
				}
				var got []string
				if err := member(t.Context(), func(id string) bool {
					got = append(got, id)
					return len(got) < len(want)
				}); err != nil {
					t.Fatal(err)
				}
				if err := <-published; err != nil {
					t.Fatal(err)
				}
				if s.name == "Go CDK mempubsub" || s.name == "Watermill GoChannel" && stored {
					slices.Sort(got) // it promises no order
					slices.Sort(want)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestMeasureFails(t *testing.T) {
	m := &machine{options: options{match: regexp.MustCompile("")}, dir: t.TempDir(), progress: io.Discard}
	closed := errors.New("closed badly")
	for _, tt := range []struct {
		name string
		link link
		want error
	}{
		{"not offered", link{}, errNotOffered},
		{"close", link{close: func() error { return closed }}, closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := system{open: func(context.Context, site) (*link, error) {
				l := tt.link
				if l.close == nil {
					l.close = func() error { return nil }
				}
				return &l, nil
			}}
			if _, err := m.measure(t.Context(), s, workloads[0], 1); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}
