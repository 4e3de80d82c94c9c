package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// finds are faults that a judge finds: those of the tables, by name, and some
// that are for histories.
type finds struct {
	judge  string
	faults []string
	more   []fault
}

var found = []finds{
	{judge: "lost", faults: []string{"drops every 50th", "a retry drops", "a release drops", "lost after 5 retries", "a restart skips", "a restart loses everything"}},
	{judge: "unexpected", more: []fault{{name: "makes up an event", wrap: invents}}},
	{judge: "aborted", faults: []string{"a cancelled Publish says nothing was stored"}, more: []fault{{name: "stores what it refuses", wrap: storesAndRefuses}}},
	{judge: "after-ack", faults: []string{"drops acks", "drops an ack now and then", "enqueues twice", "a second Subscribe resets the position", "a restart forgets acks"}},
	{judge: "overlap", faults: []string{"redelivers 2 ns early", "a lease ends early", "members have a copy each"}},
	{judge: "attempt", faults: []string{"attempt is always 1", "attempt is from 0", "attempts are by member", "a release counts", "attempts are lost at a restart"}},
	{judge: "fidelity", faults: []string{"drops an extension", "trims values", "trims data", "data as a string", "truncates at 64 KiB", "time to the microsecond", "mangles UTF-8", "decodes values twice"}},
	{judge: "isolation", faults: []string{"shares events between deliveries", "shares data between deliveries", "shares extensions between deliveries"}, more: []fault{
		{name: "keeps what the publisher has", wrap: keepsPublished(func(d *messaging.Delivery, kept event.Event) {
			if len(kept.DataEncoded) == len(d.Value.DataEncoded) {
				d.Value.DataEncoded = kept.DataEncoded
			}
		})},
	}},
	{judge: "window", faults: []string{"no bound on what is out", "one too many is out"}},
	{judge: "filter", faults: []string{"filters by prefix", "filters without case", "ignores types", "> is none or more tokens"}},
	{judge: "dedup", faults: []string{"no deduplication", "deduplication that never ends", "deduplication by id"}},
	{judge: "order", faults: []string{"reverses batches", "two are out in strict order", "a retry breaks the order"}, more: []fault{{name: "two at a time, the last first", wrap: swaps}}},
	{judge: "start", faults: []string{"ignores Start", "starts at new", "a second Subscribe resets the position"}, more: []fault{
		{name: "StartNew is one too early", wrap: startsNew(0)},
		{name: "StartNew is one too late", wrap: startsNew(2)},
	}},
	{judge: "fairness", faults: []string{"starves a member"}},
	{judge: "fencing", faults: []string{"a late settle settles", "a stale retry redelivers"}, more: []fault{{name: "a late settle ends the next delivery", wrap: staleAckEnds}}},
	{judge: "liveness", faults: []string{"delivers 2 s late", "redelivers late", "a lost wake-up", "never redelivers", "an event that backs off blocks others"}},
	{judge: "backoff", faults: []string{"retries at once", "retries after a second at least", "each delay is an hour"}},
	{judge: "dead letter", faults: []string{"no cap", "one attempt too many", "no reason", "a dead letter is changed", "a dead letter of another age", "a reject drops", "a reject retries", "a restart loses dead letters"}},
	{judge: "shutdown", faults: []string{"drops the last on close", "close keeps what it held", "Receive after Close waits"}},
	{judge: "context", faults: []string{"ignores Receive's context", "ignores Publish's context"}},
	{judge: "names", faults: []string{"sanitises names"}, more: []fault{{name: "names in conflict", wrap: conflictingNames}}},
	{judge: "batch", faults: []string{"stores part of a refused call"}},
}

// A fault that histories are to find is found in each: a workload does enough
// of everything.
func TestHistoryFindsFaults(t *testing.T) {
	for _, f := range found {
		faults := f.more
		for _, name := range f.faults {
			faults = append(faults, faultNamed(name))
		}
		for _, one := range faults {
			t.Run(f.judge+"/"+one.name, func(t *testing.T) {
				t.Parallel()
				j, h := judgeNamed(t, f.judge), recorded(t, faultyHarness(one), 1)
				v := j.find(h)
				if v == nil {
					t.Fatalf("%s finds nothing", j.name)
				}
				t.Log(j.failure(h, v))
			})
		}
	}
}

func recorded(t *testing.T, h Harness, seed uint64) *history {
	t.Helper()
	got, err := newSuite(h).workload(t, seed)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return got
}

func judgeNamed(t *testing.T, name string) judge {
	t.Helper()
	for _, j := range judges {
		if j.name == name {
			return j
		}
	}
	t.Fatalf("there is no judge %s", name)
	return judge{}
}

// invents gives now and then an event an id that nobody gave it.
func invents(b *bent) {
	b.deliver = func(_ *bentSource, d *messaging.Delivery) *messaging.Delivery {
		if b.next("delivered")%100 == 0 {
			v1(&d.Value).ID += ".invented"
			delete(v1(&d.Value).Extensions, tagName)
		}
		return d
	}
}

// storesAndRefuses stores although the context has ended, and says that it did.
func storesAndRefuses(b *bent) {
	b.publish = func(ctx context.Context, events []event.Event) error {
		return errors.Join(b.Broker.Publish(context.WithoutCancel(ctx), events...), ctx.Err())
	}
}

// swaps delivers the second of two events first, if both are there.
func swaps(b *bent) {
	var mu sync.Mutex
	second := make(map[*bentSource]*messaging.Delivery)
	b.receive = func(ctx context.Context, s *bentSource) (*messaging.Delivery, error) {
		mu.Lock()
		d := second[s]
		delete(second, s)
		mu.Unlock()
		if d != nil {
			return d, nil
		}
		d, err := s.Source.Receive(ctx)
		if err != nil {
			return nil, err
		}
		now, cancel := context.WithTimeout(ctx, 1)
		defer cancel()
		next, err := s.Source.Receive(now)
		if err != nil {
			return d, nil
		}
		mu.Lock()
		defer mu.Unlock()
		second[s] = d
		return next, nil
	}
}

// startsNew counts the events of the log, and begins at the last, or behind the
// next.
func startsNew(after uint64) func(*bent) {
	return func(b *bent) {
		b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
			if sub.Start != messaging.StartNew() || b.next(key(sub)) > 1 {
				return b.Broker.Subscribe(ctx, sub, report)
			}
			src, err := b.Broker.Subscribe(ctx, messaging.Subscription{Name: "counts", MaxInFlight: 1 << 20}, nil)
			if err != nil {
				return nil, err
			}
			defer src.Close()
			var last uint64
			for {
				now, cancel := context.WithTimeout(ctx, 1)
				d, err := src.Receive(now)
				cancel()
				if err != nil {
					break
				}
				last = d.Info.Sequence
			}
			sub.Start = messaging.StartFrom(last + after)
			return b.Broker.Subscribe(ctx, sub, report)
		}
	}
}

// staleAckEnds acks the delivery after the one that was acked too late, and
// reports the latter as lost.
func staleAckEnds(b *bent) {
	b.later = make(map[string]*messaging.Delivery)
	b.deliver = func(s *bentSource, d *messaging.Delivery) *messaging.Delivery {
		b.mu.Lock()
		defer b.mu.Unlock()
		id := key(s.sub) + d.Value.ID()
		b.later[id] = d
		return reactor.NewDelivery(d.Value, d.Info, time.Time{}, &lateSettled{d, &lateSettler{b, id}})
	}
}

type lateSettled struct {
	*messaging.Delivery
	late *lateSettler
}

func (s *lateSettled) Settle(ctx context.Context, o reactor.Outcome) error {
	err := s.Delivery.Settle(ctx, o)
	if errors.Is(err, reactor.ErrLost) {
		s.late.Settle(ctx, reactor.Outcome{Result: reactor.Retried, After: time.Millisecond})
	}
	if errors.Is(err, reactor.ErrSettled) {
		return reactor.ErrLost
	}
	return err
}

// conflictingNames takes two names for one, which then asks for two settings.
func conflictingNames(b *bent) {
	b.subscribe = func(ctx context.Context, sub messaging.Subscription, report messaging.Report) (messaging.Source, error) {
		if strings.HasSuffix(sub.Name, "-1") && b.next("twins") == 1 {
			return nil, fmt.Errorf("%w: as if its settings were others", messaging.ErrConflict)
		}
		return b.Broker.Subscribe(ctx, sub, report)
	}
}
