package ledger_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/catchment-events/catchment/conformance"
	"github.com/catchment-events/catchment/internal/deadfull"
	"github.com/catchment-events/catchment/provider/ledger"
)

// window is the deduplication window of the brokers under test.
const window = 2 * time.Second

const capabilities = conformance.Durable | conformance.Synced | conformance.OrderedPublish | conformance.Positions |
	conformance.ExactAttempts | conformance.Fenced | conformance.Expires

// TestConformance is the suite in virtual time, on a file system in memory, with
// restarts that find what a process leaves behind that is killed: all that it
// had given to the operating system, and nothing else.
func TestConformance(t *testing.T) {
	h := harness(ledger.Options{}, inMemory, killed)
	h.Bubble, h.Slack = true, 0
	conformance.Run(t, h)
}

// TestConformanceConfirmedAck is the suite with acks that are synced.
func TestConformanceConfirmedAck(t *testing.T) {
	h := harness(ledger.Options{ConfirmedAck: true}, inMemory, killed)
	h.Bubble, h.Slack = true, 0
	h.Capabilities |= conformance.ConfirmedAck
	conformance.Run(t, h)
}

// TestConformanceOnDisk is the suite on the disk, with restarts that close the
// broker.
func TestConformanceOnDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("the same suite again, in real time: left out by -short")
	}
	t.Parallel()
	conformance.Run(t, harness(ledger.Options{}, onDisk, closes))
}

func harness(base ledger.Options, fs func(*testing.T) (vfs.FS, string), restart func(*testing.T, *ledger.Broker, ledger.Options) (vfs.FS, string)) conformance.Harness {
	base.Duplicates = window
	open := func(t *testing.T, opts ledger.Options) *ledger.Broker {
		fs, dir := fs(t)
		return openIn(t, fs, dir, opts)
	}
	return conformance.Harness{
		Open: func(t *testing.T) conformance.Broker { return open(t, base) },
		OpenFull: func(t *testing.T) conformance.Broker {
			opts := base
			opts.MaxEvents = 1
			b := open(t, opts)
			publish(t, b, "full")
			return b
		},
		OpenDiscarding: func(t *testing.T, events int) conformance.Broker {
			opts := base
			opts.MaxEvents, opts.DiscardOldest = events, true
			return open(t, opts)
		},
		OpenDeadFull: func(t *testing.T) (conformance.Broker, func()) {
			opts := base
			opts.MaxDeadLetters = 1
			b := &deadfull.Broker{Bounded: open(t, opts)}
			return b, func() { want(t, b.Room(t.Context())) }
		},
		Restart: func(t *testing.T, b conformance.Broker) conformance.Broker {
			fs, dir := restart(t, b.(*ledger.Broker), base)
			return openIn(t, fs, dir, base)
		},
		Inject: func(t *testing.T, b conformance.Broker, header map[string][]string, body []byte) {
			want(t, b.(*ledger.Broker).Inject(t.Context(), header, body))
		},
		Capabilities: capabilities,
		AckWait:      time.Second,
		Duplicates:   window,
		Slack:        100 * time.Millisecond,
	}
}

func openIn(t *testing.T, fs vfs.FS, dir string, opts ledger.Options) *ledger.Broker {
	t.Helper()
	b, err := ledger.Open(dir, opts.On(fs))
	want(t, err)
	t.Cleanup(func() { want(t, b.Close()) })
	return b
}

func onDisk(t *testing.T) (vfs.FS, string) { return vfs.Default, t.TempDir() }

func inMemory(*testing.T) (vfs.FS, string) { return vfs.NewCrashableMem(), "dir" }

func closes(t *testing.T, b *ledger.Broker, _ ledger.Options) (vfs.FS, string) {
	want(t, b.Close())
	return b.FS(), b.Dir()
}

func killed(t *testing.T, b *ledger.Broker, _ ledger.Options) (vfs.FS, string) {
	return crash(b.FS(), 100, rand.Uint64()), b.Dir()
}

// crash returns what a file system may be after a crash: all that was synced,
// and of the rest so many percent.
func crash(fs vfs.FS, percent int, seed uint64) *vfs.MemFS {
	return fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 0))})
}
