package jetstream

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullBytes bounds what one pull may bring: at 64 MB in its buffer for us,
	// the server cuts the connection.
	pullBytes = 16 << 20

	// pullExpiry is how long the server keeps a pull that it cannot fill. Close
	// waits for that, so it is short; a pull that ends costs two messages.
	pullExpiry = 500 * time.Millisecond

	// silence is how long the server may have nothing to say about a pull.
	silence = 4 * pullExpiry

	// pullBackoff is the pause after a pull that the server did not take.
	pullBackoff = 100 * time.Millisecond
)

// pulls is what a member has asked the server for.
type pulls struct {
	outstanding int // messages asked for that have not come
	epoch       uint64
	contact     time.Time // when the server last had something to say about it
	after       time.Time // no pull before that
}

// reset forgets the pulls: the server has lost them, or says so no more.
func (p *pulls) reset(now time.Time) {
	p.outstanding = 0
	p.epoch++
	p.contact = now
}

// silent reports whether the server should have said something by now.
func (p *pulls) silent(now time.Time) bool {
	return p.outstanding > 0 && now.Sub(p.contact) > silence
}

// usage says how many messages a member has lately received: as many may wait
// for it.
type usage struct {
	began       time.Time
	count, last int // in this window, and in the one before
}

// usageWindow is long against a round trip to the server, and short against
// what anybody would want to see waiting.
const usageWindow = 50 * time.Millisecond

func (u *usage) roll(now time.Time) {
	d := now.Sub(u.began)
	if d < usageWindow {
		return
	}
	u.last = u.count
	if d >= 2*usageWindow {
		u.last = 0
	}
	u.began, u.count = now, 0
}

func (u *usage) note(now time.Time) {
	u.roll(now)
	u.count++
}

// target is how many messages may be fetched ahead, most at most [SUB-5].
func (u *usage) target(now time.Time, most int) int {
	u.roll(now)
	return min(most, max(1, u.count, u.last))
}

// want returns how many messages to pull now, and counts them as asked for.
// m.mu is held.
func (m *member) want(now time.Time) int {
	if m.err != nil || m.stale || m.giving || now.Before(m.pulls.after) {
		return 0
	}
	target := m.usage.target(now, m.now().most)
	have := len(m.ready) + m.pulls.outstanding
	if have > target/2 {
		m.gap.behind = m.gap.behind || m.pulls.outstanding == 0
		return 0
	}
	if !m.broker.nc.IsConnected() {
		return 0
	}
	n := target - have
	if m.pulls.outstanding == 0 {
		m.pulls.contact = now
	}
	m.pulls.outstanding += n
	return n
}

// pull asks the server for n messages, that want has counted.
func (m *member) pull(n int) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	epoch := m.pulls.epoch
	m.mu.Unlock()
	err := m.broker.nc.PublishMsg(&nats.Msg{
		Subject: m.pullSubject(),
		// The answer to a pull says under its subject what it was for.
		Reply: fmt.Sprintf("%sp.%s.%d", m.inbox, formatToken(epoch), n),
		Data:  fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"expires":%d}`, n, pullBytes, pullExpiry),
	})
	if err != nil {
		m.mu.Lock()
		if m.pulls.epoch == epoch {
			m.pulls.outstanding = max(0, m.pulls.outstanding-n)
		}
		m.pulls.after = time.Now().Add(pullBackoff)
		m.mu.Unlock()
	}
}

func (m *member) pullSubject() string {
	i := m.now()
	return "$JS.API.CONSUMER.MSG.NEXT." + i.stream + "." + i.name
}

// wasHere makes the server count the time without a member from now on: a pull
// that can bring nothing.
func (m *member) wasHere() {
	_ = m.broker.nc.PublishMsg(&nats.Msg{
		Subject: m.pullSubject(),
		Reply:   m.inbox + "x.0",
		Data:    []byte(`{"batch":1,"max_bytes":1,"no_wait":true}`),
	})
}

// pullEnded takes a status of the server about a pull.
func (m *member) pullEnded(msg *nats.Msg, rest string, now time.Time) {
	e, n, _ := strings.Cut(rest, ".")
	epoch, ok := parseToken(e)
	asked, err := strconv.Atoi(n)
	if !ok || err != nil {
		return
	}
	status, description := msg.Header.Get("Status"), strings.ToLower(msg.Header.Get("Description"))
	m.mu.Lock()
	m.pulls.contact = now
	if epoch != m.pulls.epoch { // of no interest any more
		m.mu.Unlock()
		return
	}
	left, err := strconv.Atoi(msg.Header.Get("Nats-Pending-Messages"))
	if err != nil {
		left = asked
	}
	m.pulls.outstanding = max(0, m.pulls.outstanding-left)
	if status == "408" && left > 0 && len(m.out)+len(m.kept) < m.settings().MaxInFlight {
		m.gap.behind = false // it was not filled because there was nothing
	}
	switch {
	case status == "408", strings.Contains(description, "batch completed"), strings.Contains(description, "exceeds maxbytes"):
	default:
		// Nobody there to answer, deleted, another leader, a shutdown: what
		// else was asked for may be gone, too.
		m.pulls.reset(now)
		m.pulls.after = now.Add(pullBackoff)
		m.doubt()
	}
	pull := m.want(now)
	m.mu.Unlock()
	if pull == 0 {
		signal(m.nudge)
	}
	m.pull(pull)
}
