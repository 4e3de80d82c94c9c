package ledger_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger"
)

var (
	crashes   = flag.Int("crashes", 100, "simulated crashes of TestCrash")
	crashSeed = flag.Uint64("crashseed", 0, "the seed of one simulated crash to run again; 0: new ones")
)

// TestCrash lets publishers and members work in virtual time, and the machine
// crash in the middle of a random write or sync: of what was not synced, some
// share is gone. After each, what was acknowledged is there, once and in order,
// and subscriptions go on where they were.
func TestCrash(t *testing.T) {
	seed, n := rand.Uint64(), *crashes
	if *crashSeed != 0 {
		seed, n = *crashSeed, 1
	}
	stopped := 0
	for i := range n {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("to run it again: -run TestCrash -crashseed %d", seed+uint64(i))
				}
			}()
			c := newCrash(t, seed+uint64(i))
			c.run()
			if c.happened.Load() {
				stopped++
			}
		})
	}
	t.Logf("%d crashes, %d of them in the middle of the work", n, stopped)
}

// A crash is one run up to a crash, and what is after it.
type crashRun struct {
	t       *testing.T
	rand    *rand.Rand
	seed    uint64
	opts    ledger.Options
	percent int // of what was not synced, that survives
	mem     *vfs.MemFS
	left    atomic.Int64 // writes before the crash
	seeks   atomic.Int64 // that have begun

	happened atomic.Bool
	facts    *facts
	mu       sync.Mutex
	// Below: under mu.
	before *facts     // the facts when it happened: what was done
	after  *facts     // and then: what may have been done
	disk   *vfs.MemFS // what it left
}

func newCrash(t *testing.T, seed uint64) *crashRun {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &crashRun{t: t, rand: r, seed: seed, mem: vfs.NewCrashableMem(), facts: newFacts()}
	c.percent = []int{0, 30, 70, 100, 100, 100}[r.IntN(6)]
	c.opts.Duplicates = time.Hour
	c.opts.ConfirmedAck = r.IntN(2) == 0
	if r.IntN(2) == 0 {
		c.opts = c.opts.Rotating(200 + r.IntN(3000))
	}
	c.left.Store(1 + r.Int64N(700))
	return c
}

// MaybeError implements [errorfs.Injector]: it causes no errors, but the crash.
func (c *crashRun) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove, errorfs.OpReuseForWrite:
		if c.left.Add(-1) == 0 {
			c.crash()
			c.happened.Store(true)
		}
	}
	return nil
}

func (c *crashRun) String() string { return "crash" }

// crash keeps a copy of the disk, and of the facts that it must tell of.
func (c *crashRun) crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.before == nil {
		c.before = c.facts.clone()
		c.disk = crash(c.mem, c.percent, c.seed)
		c.after = c.facts.clone()
	}
}

var crashSubs = []messaging.Subscription{
	{Name: "plain", AckWait: time.Second, MaxInFlight: 32},
	{Name: "capped", AckWait: time.Second, MaxInFlight: 8, MaxAttempts: 3},
	{Name: "strict", AckWait: time.Second, MaxInFlight: 1},
	{Name: "sought", AckWait: time.Second, MaxInFlight: 16},
	{Name: "odd", AckWait: time.Second, Types: []string{"odd"}, MaxAttempts: 2},
}

// crashWorkers is how many members each subscription has.
const crashWorkers = 2

func (c *crashRun) run() {
	b, err := ledger.Open("dir", c.opts.On(errorfs.Wrap(c.mem, c)))
	want(c.t, err)
	ctx, stop := context.WithCancel(c.t.Context())
	var work sync.WaitGroup
	for i := range 2 {
		r := rand.New(rand.NewPCG(c.seed, uint64(10+i)))
		work.Go(func() { c.publisher(ctx, b, r, fmt.Sprintf("p%d", i)) })
	}
	for i, sub := range crashSubs {
		for j := range crashWorkers {
			r := rand.New(rand.NewPCG(c.seed, uint64(100+10*i+j)))
			src, err := b.Subscribe(ctx, sub, c.report)
			want(c.t, err)
			work.Go(func() { c.member(ctx, src, r, c.facts.of(sub.Name)) })
		}
	}
	r := rand.New(rand.NewPCG(c.seed, 20))
	work.Go(func() { c.seeker(ctx, b, r) })
	dead, err := b.Subscribe(ctx, crashDead("capped"), c.report)
	want(c.t, err)
	work.Go(func() { c.undertaker(ctx, dead, c.facts.of("capped")) })
	for range 200 {
		time.Sleep(10 * time.Millisecond)
		if c.happened.Load() {
			break
		}
	}
	c.crash() // if it has not happened yet
	stop()
	work.Wait()
	want(c.t, b.Close())
	c.check()
}

func (c *crashRun) report(_ context.Context, err error) { c.t.Errorf("reported: %v", err) }

func (c *crashRun) publisher(ctx context.Context, b *ledger.Broker, r *rand.Rand, name string) {
	for n := 0; n < 60 && ctx.Err() == nil; {
		events := make([]event.Event, min(60-n, 1+r.IntN(4)))
		for i := range events {
			events[i] = newEvent(c.t, fmt.Sprintf("%s-%03d", name, n))
			if n%2 == 1 {
				events[i].SetType("odd")
			}
			n++
		}
		if err := b.Publish(ctx, events...); err != nil {
			return
		}
		c.facts.published(events)
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
}

// crashDead is a subscription to the dead letters of another.
func crashDead(name string) messaging.Subscription {
	return messaging.Subscription{Name: "dead", DeadLettersOf: name}
}

// seeker moves a subscription back to the first event, again and again.
func (c *crashRun) seeker(ctx context.Context, b *ledger.Broker, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		c.seeks.Add(1)
		if err := b.Seek(ctx, messaging.Subscription{Name: "sought"}, messaging.StartFirst()); err == nil {
			c.facts.mu.Lock()
			c.facts.subs["sought"].sought++
			c.facts.mu.Unlock()
		}
	}
}

// undertaker acks every other dead letter.
func (c *crashRun) undertaker(ctx context.Context, src messaging.Source, f *subFacts) {
	for n := 0; ; n++ {
		d, err := src.Receive(ctx)
		if err != nil {
			return
		}
		if n%2 == 0 {
			id := d.Value.ID()
			f.note(id, func(e *eventFacts) { e.mayBury = true })
			if d.Ack(ctx) == nil {
				f.note(id, func(e *eventFacts) { e.buried = true })
			}
		}
	}
}

// member receives, and settles in each way there is, or not at all.
func (c *crashRun) member(ctx context.Context, src messaging.Source, r *rand.Rand, f *subFacts) {
	for {
		d, err := src.Receive(ctx)
		if err != nil {
			return
		}
		id := d.Value.ID()
		f.note(id, func(e *eventFacts) { e.delivered++ })
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		}
		settle := func(begun, done func(*eventFacts), do func() error) {
			f.note(id, begun)
			if err := do(); err == nil {
				f.note(id, done)
			}
		}
		switch n := r.IntN(20); {
		case n < 13:
			settle(func(e *eventFacts) { e.mayAck, e.seeks = true, int(c.seeks.Load()) }, func(e *eventFacts) { e.acked = true }, func() error { return d.Ack(ctx) })
		case n < 16:
			settle(func(*eventFacts) {}, func(*eventFacts) {}, func() error { return d.Retry(ctx, time.Duration(r.IntN(2)*30)*time.Millisecond) })
		case n < 18:
			settle(func(e *eventFacts) { e.mayRelease++ }, func(e *eventFacts) { e.released++ }, func() error { return d.Release(ctx) })
		case n < 19:
			settle(func(e *eventFacts) { e.mayReject = true }, func(e *eventFacts) { e.rejected = true }, func() error { return d.Reject(ctx, "for a test") })
		}
	}
}

// check opens what the crash has left, and looks whether it is all there.
func (c *crashRun) check() {
	b, err := ledger.Open("dir", c.opts.On(c.disk))
	want(c.t, err)
	defer func() { want(c.t, b.Close()) }()
	c.stored(b, false)
	for _, sub := range crashSubs {
		c.resumed(b, sub)
	}
	// What was under way may be published again, and is there once then.
	for _, p := range []string{"p0", "p1"} {
		for n := range 60 {
			e := newEvent(c.t, fmt.Sprintf("%s-%03d", p, n))
			want(c.t, b.Publish(c.t.Context(), e))
		}
	}
	c.stored(b, true)
}

// drain receives and acks all there is.
func (c *crashRun) drain(b *ledger.Broker, sub messaging.Subscription) (ds []*messaging.Delivery) {
	src, err := b.Subscribe(c.t.Context(), sub, c.report)
	want(c.t, err)
	defer src.Close()
	for {
		ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
		d, err := src.Receive(ctx)
		cancel()
		if err != nil {
			wantErr(c.t, err, context.DeadlineExceeded)
			return ds
		}
		ds = append(ds, d)
		want(c.t, d.Ack(c.t.Context()))
	}
}

// stored checks the log: each acknowledged event once, and in order, unless
// some were published anew.
func (c *crashRun) stored(b *ledger.Broker, anew bool) {
	last, seen := make(map[string]string), make(map[string]bool)
	for _, d := range c.drain(b, messaging.Subscription{Name: fmt.Sprint("check-", anew)}) {
		id := d.Value.ID()
		if seen[id] {
			c.t.Errorf("event %s is stored twice", id)
		}
		seen[id] = true
		p, _, _ := strings.Cut(id, "-")
		if !anew && last[p] > id {
			c.t.Errorf("event %s is stored after %s", id, last[p])
		}
		last[p] = id
	}
	for id := range c.before.acknowledged {
		if !seen[id] {
			c.t.Errorf("event %s was acknowledged, and is not stored", id)
		}
	}
	if anew && len(seen) != 120 {
		c.t.Errorf("%d events are stored, want 120", len(seen))
	}
}

// resumed checks a subscription.
func (c *crashRun) resumed(b *ledger.Broker, sub messaging.Subscription) {
	facts, later := c.before.of(sub.Name), c.after.of(sub.Name)
	killed := c.percent == 100
	came, letters := make(map[string]int), make(map[string]int)
	for _, d := range c.drain(b, sub) {
		id, attempt := d.Value.ID(), d.Info.Attempt
		if came[id] > 0 {
			c.t.Errorf("%s: event %s came twice", sub.Name, id)
		}
		came[id] = attempt
	}
	for _, d := range c.drain(b, crashDead(sub.Name)) {
		letters[d.Value.ID()]++
	}
	unseen := 0 // deliveries that the members had not noted yet
	for id, attempt := range came {
		e, l := facts.events[id], later.events[id]
		least, most := 1+e.delivered-l.mayRelease, 1+l.delivered-e.released
		if !killed {
			least, most = 1, 2+l.delivered
		}
		if sub.Name == "sought" {
			// A Seek forgets, and members go on before it returns.
			if acked := e.acked && e.seeks == int(c.seeks.Load()); acked && e.seeks == facts.sought && c.opts.ConfirmedAck {
				c.t.Errorf("%s: event %s came after it was settled: %+v", sub.Name, id, e)
			}
			continue
		}
		switch {
		case sub.MaxAttempts > 0 && attempt > sub.MaxAttempts:
			c.t.Errorf("%s: event %s came with attempt %d, of %d at most", sub.Name, id, attempt, sub.MaxAttempts)
		case e.acked && c.opts.ConfirmedAck, e.rejected:
			c.t.Errorf("%s: event %s came after it was settled: %+v", sub.Name, id, e)
		case attempt < least, attempt > most+1:
			c.t.Errorf("%s: event %s came with attempt %d, want %d to %d: %+v", sub.Name, id, attempt, least, most, e)
		case attempt > most:
			unseen++
		}
	}
	if unseen > crashWorkers {
		c.t.Errorf("%s: the attempts of %d events are one too high, with %d members", sub.Name, unseen, crashWorkers)
	}
	for id, n := range letters {
		if n > 1 && sub.Name != "sought" {
			c.t.Errorf("%s: event %s is %d dead letters", sub.Name, id, n)
		}
		if facts.events[id].buried && c.opts.ConfirmedAck {
			c.t.Errorf("%s: the dead letter %s is there after it was acked", sub.Name, id)
		}
	}
	for id, typ := range c.before.acknowledged {
		e := later.events[id]
		if len(sub.Types) > 0 && typ != "odd" || e.mayAck && e.seeks >= facts.sought || e.mayBury || came[id] > 0 || letters[id] > 0 {
			continue
		}
		c.t.Errorf("%s: event %s was not settled, and did not come: %+v", sub.Name, id, e)
	}
}
