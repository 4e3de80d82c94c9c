// Package embedded starts a NATS server with JetStream in the process: for
// tests, examples, and programs that are a server themselves. It is apart from
// package jetstream so that services that only connect do not link a server.
//
//	srv, err := embedded.Start(dir, nil)
//	...
//	defer srv.Close()
//	nc, err := srv.Connect()
package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/provider/jetstream"
)

// Options are the settings of a server. The zero value and nil stand for the
// defaults.
type Options struct {
	// SyncInterval is how often the server makes what it has written safe
	// from a loss of power. Default 0: before it acknowledges.
	SyncInterval time.Duration

	// Host and Port are those of a TCP listener, for others to connect; port
	// -1 takes a free one. Default: none, and only Connect can.
	Host string
	Port int

	// StartTimeout is how long the server may take to start, which grows with
	// what it keeps. Default 30 s.
	StartTimeout time.Duration
}

// A Server is a server in the process. Its methods are safe for concurrent use.
type Server struct {
	server *server.Server
	close  func() error // once
}

// Start starts a server that keeps its streams in a directory, which it creates
// if it is missing. One server has a directory at a time; a second Start is an
// error that says so.
func Start(dir string, opts *Options) (*Server, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 30 * time.Second
	}
	if dir == "" {
		return nil, errors.New("embedded: the directory is empty")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("embedded: %s is in use by another process: %w", dir, err)
	}
	s, err := server.NewServer(&server.Options{
		ServerName:   "catchment-embedded",
		JetStream:    true,
		StoreDir:     dir,
		SyncInterval: o.SyncInterval,
		SyncAlways:   o.SyncInterval == 0,
		Host:         o.Host,
		Port:         o.Port,
		DontListen:   o.Port == 0,
		NoSigs:       true,
		NoLog:        true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: %w", err), unlockFile(lock))
	}
	s.Start()
	if !s.ReadyForConnections(o.StartTimeout) || !s.JetStreamEnabled() {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, errors.Join(fmt.Errorf("embedded: the server did not start with JetStream in %s within %v", dir, o.StartTimeout), unlockFile(lock))
	}
	return &Server{server: s, close: sync.OnceValue(func() error {
		s.Shutdown()
		s.WaitForShutdown()
		if err := unlockFile(lock); err != nil {
			return fmt.Errorf("embedded: %w", err)
		}
		return nil
	})}, nil
}

// Connect returns a connection to the server through memory, with the options
// of [jetstream.Connect]. The caller closes it.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	return jetstream.Connect("nats://embedded", append([]nats.Option{nats.InProcessServer(s.server)}, opts...)...)
}

// URL returns what others connect to, or "" if the server does not listen.
func (s *Server) URL() string {
	if s.server.Addr() == nil {
		return ""
	}
	return s.server.ClientURL()
}

// Close stops the server, after connections have had what it owed them. It is
// idempotent.
func (s *Server) Close() error { return s.close() }
