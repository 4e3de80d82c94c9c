package main

import (
	"context"

	"github.com/catchment-events/catchment/event"
)

// A system is something to measure.
type system struct {
	name  string
	group string // memory, jetstream or disk: what is compared with each other
	gives string // what it guarantees, or lacks, beside the others
	open  func(ctx context.Context, s site) (*link, error)
}

// A site is what a system is opened at.
type site struct {
	name   string // nobody else's
	url    string // of the NATS server
	dir    string // for files; it is empty
	stored bool   // events are published before anybody subscribes
}

// A link is one opened system, with an empty log. A nil function is something
// that the system does not offer.
type link struct {
	// publish returns when the system has answered for the event, which it
	// may keep until ringSize more are published. It is safe for concurrent
	// use.
	publish func(ctx context.Context, e event.Event) error
	// batch publishes events by one call, if there is one for that.
	batch func(ctx context.Context, es []event.Event) error
	// flush waits for what batch has not waited for.
	flush func(ctx context.Context) error
	// subscribe opens the one member.
	subscribe func(ctx context.Context) (member, error)
	// idle adds a subscription of that name that has no member.
	idle  func(ctx context.Context, name string) error
	close func() error
}

// A member receives, handles and acks, until handle returns false.
type member func(ctx context.Context, handle handler) error

// A handler is told the id of what arrived, and says whether it wants more.
type handler func(id string) (more bool)

// batchSize is how many events go by one call.
const batchSize = 1000

// publishAll publishes by one caller, in batches if asked to and if the system
// has them.
func (l *link) publishAll(ctx context.Context, f *feed, batches bool) error {
	if !batches || l.batch == nil {
		for f.left() > 0 {
			if err := l.publish(ctx, f.take(1)[0]); err != nil {
				return err
			}
		}
		return nil
	}
	for f.left() > 0 {
		if err := l.batch(ctx, f.take(batchSize)); err != nil {
			return err
		}
	}
	if l.flush != nil {
		return l.flush(ctx)
	}
	return nil
}

// systems are all, ours first in each group: the others are compared with it.
var systems = []system{
	{"catchment memory", "memory", "the whole contract but durability: checked, encoded and decoded as on a server, stored, deduplicated, acked, retried, bounded", openMemory},
	{"Watermill GoChannel", "memory", "ordered: Publish waits for the ack (BlockPublishUntilSubscriberAck); nothing is stored, and what is published without a subscriber is gone. Published before: Persistent, which has no order", openGoChannel},
	{"Go CDK mempubsub", "memory", "acks with a deadline; no order, no log, no deduplication; polls every 250 ms when idle", openMempubsub},
	{"Go channel", "memory", "a buffered channel of 1024 values, not copied: no store, no ack, no subscription", openChannel},

	{"catchment jetstream", "jetstream", "the whole contract: checked, ids deduplicated, acked after the handler without waiting for the server", openJetStream},
	{"raw nats.go", "jetstream", "the floor: PublishMsg with message id, PublishMsgAsync with 4096 on their way in place of batches, Consume and Ack; headers as they come, nothing checked or decoded", openRaw(false)},
	{"raw nats.go and our codec", "jetstream", "the same, with the events checked, encoded and decoded as ours: the difference is the codec's", openRaw(true)},
	{"watermill-nats v2, AckAsync", "jetstream", "no message id, so no deduplication; acks do not wait for the server, as ours; batches are a loop", openWatermillNATS(true)},
	{"watermill-nats v2", "jetstream", "the same, in its default: each ack waits for the server", openWatermillNATS(false)},
	{"CloudEvents SDK v2", "jetstream", "no message id, so no deduplication; acks before the handler has run: at most once", openCloudEvents},

	{"catchment ledger", "disk", "the whole contract, synced before Publish returns: survives the loss of power; acks are synced within 10 ms", openLedger},
	{"embedded JetStream", "disk", "the whole contract, on a server in this process with sync_interval always: synced before Publish returns", openEmbedded},
	{"raw Pebble", "disk", "a store, and no broker: synced before publish returns, deleted unsynced after the handler; nothing checked, decoded, deduplicated or retried", openPebble},
}
