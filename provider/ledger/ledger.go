package ledger

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// A Broker is a log in a directory with its subscriptions. Its methods are safe
// for concurrent use. It implements [messaging.Broker] and [messaging.Admin].
type Broker struct {
	opts     Options
	fs       vfs.FS
	dir      string
	held     *holder
	db       *pebble.DB
	events   *events
	producer *queue.Producer
	journal  *journal
	gate     *gate
	guard    *queue.Guard

	dirty atomic.Bool   // something waits to be synced
	stirs chan struct{} // room for one
	stop  chan struct{} // ends the flusher
	close sync.Once
	down  chan struct{} // closed when Close has done its work
	work  sync.WaitGroup

	all atomic.Pointer[[]*consumer] // of the log's; replaced under mu

	admin sync.Mutex // one change of the subscriptions at a time
	mu    sync.Mutex
	// Below: under mu.
	consumers map[identity]*consumer
	letters   map[string]*letters // by subscription
	counter   uint64              // the last number given away
	result    error               // of Close, once down
}

var _ messaging.Broker = (*Broker)(nil)

type identity struct{ deadLettersOf, name string }
