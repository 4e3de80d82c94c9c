package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/catchment-events/catchment/provider/jetstream/embedded"
)

// serveVariable has the program be the server, with its streams in the
// directory that it names.
const serveVariable = "CATCHMENT_PEERS_SERVE"

// serve runs a server until its standard input ends: until the process that
// started it is gone.
func serve(dir string) {
	srv, err := embedded.Start(dir, &embedded.Options{
		SyncInterval: 2 * time.Minute, // the server's own default
		Host:         "127.0.0.1",
		Port:         -1,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers: server:", err)
		os.Exit(1)
	}
	fmt.Println(srv.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = srv.Close()
}

// A process is a server in a process of its own, so that what is measured here
// is the client's.
type process struct {
	url  string
	stop func() error
}

func startServer(ctx context.Context, dir string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), serveVariable+"="+filepath.Join(dir, "server"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		return nil, errors.Join(fmt.Errorf("the server has not started: %w", err), stop())
	}
	return &process{url: url, stop: stop}, nil
}
