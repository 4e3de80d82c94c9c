// Command peers measures this module beside the libraries that do something
// similar, and beside the clients below them: one machine, one payload, the same
// settings, one after another in turns.
//
//	go run ./internal/peers                      # all of it, in less than ten minutes
//	go run ./internal/peers -run 'memory/.*/stream' -rounds 11
//	go run ./internal/peers -table BENCHMARKS.md -svg internal/peers/rates.svg
//
// It prints Markdown: a table for each group of systems, what they guarantee,
// and the ratios that the project asks of itself, with whether they hold.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"time"
)

// options are the flags.
type options struct {
	rounds  int
	each    time.Duration
	match   *regexp.Regexp
	growth  int
	table   string
	picture string
	profile string
}

func main() {
	if dir := os.Getenv(serveVariable); dir != "" {
		serve(dir)
		return
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often each system is measured; medians are reported")
	flag.DurationVar(&o.each, "each", 250*time.Millisecond, "about how long one measurement takes")
	run := flag.String("run", "", "measure only what this regular expression matches in group/system/workload")
	flag.IntVar(&o.growth, "growth", 1_000_000, "how many events the large log holds in the growth table; 0: no such table")
	flag.StringVar(&o.table, "table", "", "also write the tables to this file; between "+tableBegin+" and "+tableEnd+" if it has them")
	flag.StringVar(&o.picture, "svg", "", "write a picture of the end-to-end rates to this file")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a profile of this process, not of the server's, to this file")
	flag.Parse()
	var err error
	if o.match, err = regexp.Compile(*run); err != nil || flag.NArg() > 0 || o.rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measureAll(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}

// measureAll measures, and prints what came of it to out; what is going on, to
// progress.
func measureAll(ctx context.Context, o options, out, progress io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	began := time.Now()
	m := &machine{options: o, url: server.url, dir: dir, progress: progress}
	r := newResults()
	if err := m.workloads(ctx, r); err != nil {
		return err
	}
	if err := m.codecs(r); err != nil {
		return err
	}
	if o.growth > 0 {
		if err := m.growths(ctx, r); err != nil {
			return err
		}
	}
	report := r.markdown(o, time.Since(began))
	if _, err := io.WriteString(out, report); err != nil {
		return err
	}
	if o.table != "" {
		if err := writeTable(o.table, report); err != nil {
			return err
		}
	}
	if o.picture != "" {
		if err := os.WriteFile(o.picture, []byte(r.svg()), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(r.failed...)
}
