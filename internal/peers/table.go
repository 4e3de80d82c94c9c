package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// markdown is the report.
func (r *results) markdown(o options, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s, %s/%s; medians of %d rounds, taken by turns; %v in all.\n",
		processor(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, o.rounds, took.Round(time.Second))
	for _, g := range groups {
		if t := r.group(g); t != nil {
			fmt.Fprintf(&b, "\n### %s\n\nEvents a second, in brackets as a part of ours, and allocations an event; latency is p50 / p99 / p99.9.\n\n%s", g.title, t)
		}
	}
	if t := r.codecTable(); t != nil {
		fmt.Fprintf(&b, "\n### Codec\n\nOne event to and from message headers.\n\n%s", t)
	}
	if len(r.growth) > 0 {
		fmt.Fprintf(&b, "\n### Growth\n\nWhat publishing an event costs, in batches of %d.\n\n%s", batchSize, r.growthTable())
	}
	fmt.Fprintf(&b, "\n### Asked for\n\nRatios are medians of the rounds' ratios. By CPU time: of what an event has cost this process, not the server.\n\n%s", r.targetTable())
	fmt.Fprintf(&b, "\n### What they guarantee\n\n%s", r.guarantees())
	return b.String()
}

// Marks in a file, between which the tables are.
const (
	tableBegin = "<!-- peers -->"
	tableEnd   = "<!-- /peers -->"
)

// writeTable writes the report to a file, or between the marks of one that has
// them.
func writeTable(name, report string) error {
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	before, rest, begins := strings.Cut(string(old), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if begins && ends {
		report = before + tableBegin + "\n" + report + tableEnd + after
	}
	return os.WriteFile(name, []byte(report), 0o644)
}

// A table is Markdown's; the first row is its head.
type table [][]string

func (t table) String() string {
	var b strings.Builder
	for i, row := range t {
		b.WriteString("|")
		for _, cell := range row {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

// group is the table of one group, or nil if nothing was measured.
func (r *results) group(g group) table {
	head := []string{""}
	var used []workload
	for _, w := range workloads {
		for _, s := range systems {
			if s.group == g.name && len(r.samples[key{s.name, w.name}]) > 0 {
				head, used = append(head, w.name), append(used, w)
				break
			}
		}
	}
	if used == nil {
		return nil
	}
	t := table{head}
	first := ""
	for _, s := range systems {
		if s.group != g.name {
			continue
		}
		if first == "" {
			first = s.name
		}
		row, measured := []string{s.name}, false
		for _, w := range used {
			cell := r.cell(s.name, w.name, first)
			measured = measured || cell != ""
			row = append(row, cell)
		}
		if measured {
			t = append(t, row)
		}
	}
	return t
}

// cell is what a system did with a workload, compared with the first of its
// group.
func (r *results) cell(system, workload, first string) string {
	samples := r.samples[key{system, workload}]
	if len(samples) == 0 {
		return ""
	}
	if workload == latency {
		return fmt.Sprintf("%s / %s / %s µs", micros(r.wait(system, 0.5)), micros(r.wait(system, 0.99)), micros(r.wait(system, 0.999)))
	}
	rate := r.rate(system, workload)
	text := perSecond(rate)
	if part := r.ratio(key{system, workload}, key{first, workload}); system != first && part > 0 {
		text += fmt.Sprintf(" (%.2f)", part)
	}
	return text + fmt.Sprintf(", %.0f", r.allocs(system, workload))
}

// guarantees says what each system that was measured gives.
func (r *results) guarantees() table {
	t := table{{"", ""}}
	for _, s := range systems {
		for _, w := range workloads {
			if len(r.samples[key{s.name, w.name}]) > 0 {
				t = append(t, []string{s.name, s.gives})
				break
			}
		}
	}
	return t
}

func (r *results) codecTable() table {
	if len(r.codec) == 0 {
		return nil
	}
	t := table{{"", encode, decode}}
	for _, name := range []string{ourCodec, sdkCodec} {
		row := []string{name}
		for _, what := range []string{encode, decode} {
			row = append(row, fmt.Sprintf("%.0f ns, %.0f allocations", r.perCall(name, what), r.codecAllocs(name, what)))
		}
		t = append(t, row)
	}
	return t
}

func (r *results) growthTable() table {
	t := table{{"", "of", "few", "many", "cost with few", "with many", "ratio"}}
	for _, g := range r.growth {
		small, large := g.cost()
		t = append(t, []string{g.system, g.of, strconv.Itoa(g.small), strconv.Itoa(g.large),
			small.String(), large.String(), fmt.Sprintf("%.2f", g.ratio())})
	}
	return t
}

func (r *results) targetTable() table {
	t := table{{"", "asked", "measured", "by CPU time", "holds"}}
	for _, g := range r.targets() {
		measured, byCPU, holds := "not measured", "", "–"
		if g.known {
			measured, holds = fmt.Sprintf("%.3g%s", g.measured, space(g.unit)), "no"
			if g.holds {
				holds = "yes"
			}
			if g.cpu > 0 {
				byCPU = fmt.Sprintf("%.3g ×", g.cpu)
			}
		}
		t = append(t, []string{g.what, g.asked, measured, byCPU, holds})
	}
	return t
}

func space(unit string) string {
	if unit == "×" {
		return " ×"
	}
	return unit
}

// perSecond writes a rate with three digits.
func perSecond(rate float64) string {
	switch {
	case rate >= 1e6:
		return fmt.Sprintf("%.3g M/s", rate/1e6)
	case rate >= 1e3:
		return strconv.FormatFloat(round3(rate/1e3), 'f', -1, 64) + " k/s"
	}
	return strconv.FormatFloat(round3(rate), 'f', -1, 64) + " /s"
}

// round3 rounds to three digits.
func round3(v float64) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		panic(err) // it has just been formatted
	}
	return f
}

func micros(d time.Duration) string {
	return strconv.FormatFloat(round3(float64(d)/float64(time.Microsecond)), 'f', -1, 64)
}

// processor is the name that the processor has for itself, where it can be had.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
