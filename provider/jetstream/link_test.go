package jetstream_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/catchment-events/catchment/provider/jetstream"
)

// A link is a TCP connection to a server that can be cut and mended, and can
// lead elsewhere afterwards.
type link struct {
	listener net.Listener

	mu     sync.Mutex
	target string // empty: cut
	conns  map[net.Conn]struct{}
	held   bool          // what the server sends is held back
	kept   bool          // and it has sent something
	lost   string        // what is sent next with this in it is lost; empty: nothing
	last   string        // the client's text after which what the server sends is held back
	delay  time.Duration // of what the server sends
	wake   *sync.Cond
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, target: target, conns: make(map[net.Conn]struct{})}
	l.wake = sync.NewCond(&l.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { l.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.hold(false)
		l.cut()
		wg.Wait()
	})
	return l
}

func (l *link) serve(client net.Conn) {
	defer client.Close()
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	if target == "" {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	l.mu.Lock()
	if l.target != target {
		l.mu.Unlock()
		return
	}
	l.conns[client], l.conns[server] = struct{}{}, struct{}{}
	l.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { l.pass(server, client, l.sent) })
	wg.Go(func() { l.pass(client, server, l.answered) })
	wg.Wait()
	l.mu.Lock()
	delete(l.conns, client)
	delete(l.conns, server)
	l.mu.Unlock()
}

// pass copies what is read from one side to the other, each time after a look.
func (l *link) pass(to, from net.Conn, look func(read []byte)) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		look(buf[:n])
		if l.loses(buf[:n]) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sent looks at what the client sends.
func (l *link) sent(read []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != "" && strings.Contains(string(read), l.last) {
		l.last, l.held = "", true
	}
}

// answered looks at what the server sends, and holds it back.
func (l *link) answered(read []byte) {
	l.mu.Lock()
	delay := l.delay
	l.mu.Unlock()
	time.Sleep(delay)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held {
		l.kept = l.kept || len(read) > 0
		l.wake.Wait()
	}
	l.kept = false
}

// cut breaks the link, and all that goes over it.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = ""
	for c := range l.conns {
		_ = c.Close()
	}
}

// cutOff breaks the link, and waits until the client has seen it.
func (l *link) cutOff(t *testing.T, nc *nats.Conn) {
	t.Helper()
	l.cut()
	within(t, 5*time.Second, "the cut", func() bool { return !nc.IsConnected() })
}

// mend makes the link lead to target.
func (l *link) mend(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// lose breaks the link, once, when something is sent with a text in it, of either
// side, which is lost.
func (l *link) lose(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = text
}

// loses tells whether what was read is to be lost, and breaks the link.
func (l *link) loses(read []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == "" || !strings.Contains(string(read), l.lost) {
		return false
	}
	l.lost = ""
	for c := range l.conns {
		_ = c.Close()
	}
	return true
}

// holdAfter holds back what the server sends once the client has sent a text.
func (l *link) holdAfter(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = text
}

// keeps reports whether something that the server has sent is held back.
func (l *link) keeps() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// slow delays what the server sends.
func (l *link) slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

// hold holds back what the server sends, as a stalled network does.
func (l *link) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.wake.Broadcast()
}

func (l *link) url() string { return "nats://" + l.listener.Addr().String() }

// connect returns a connection over the link that is closed with the test.
func (l *link) connect(t *testing.T, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := jetstream.Connect(l.url(), append([]nats.Option{
		nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
