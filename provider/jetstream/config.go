package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
)

// Config are the settings of a broker. The zero value stands for the defaults.
//
// Stream, Prefix and Storage are for good. What else describes the stream is
// used when it is created; an existing one must agree in what is set here.
type Config struct {
	// Stream is the name of the stream that is the log: 1 to 64 letters,
	// digits, _ and -. The stream for dead letters, and for what a broker
	// notes, has the same name with _DEAD behind it. Default "catchment".
	Stream string

	// Prefix is the first token or tokens of every subject; the dead letters'
	// have it with _DEAD behind it. Default: Stream.
	Prefix string

	// Storage is where the server keeps the log. Default
	// [natsjs.FileStorage]; with [natsjs.MemoryStorage] nothing survives the
	// server.
	Storage natsjs.StorageType

	// Replicas is how many servers of a cluster keep the log. Default 1.
	Replicas int

	// MaxEvents, MaxBytes and MaxAge bound the log [RET-1]. Default: as an
	// existing stream has it, and none for a new one.
	MaxEvents int64
	MaxBytes  int64
	MaxAge    time.Duration

	// DiscardOldest lets the oldest events go when the log is at its bound.
	// Default: Publish refuses with ErrFull [RET-2].
	DiscardOldest bool

	// Duplicates is the deduplication window [PUB-3]. Default
	// messaging.DefaultDuplicates.
	Duplicates time.Duration

	// MaxPending is how many events may be on their way to the server at a
	// time, of all callers of Publish; more wait. Default 4096.
	MaxPending int

	// ConfirmedAcks makes a settle wait until the server has confirmed it
	// (CAP ConfirmedAck). It costs a round trip each. Default: it does not
	// wait, and a broken connection may undo acks of the last moments
	// [ACK-1].
	ConfirmedAcks bool
}

// withDefaults returns c with its zero fields filled in, or an error that names
// a field out of range.
func (c Config) withDefaults() (Config, error) {
	if c.Stream == "" {
		c.Stream = "catchment"
	}
	if c.Prefix == "" {
		c.Prefix = c.Stream
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Duplicates == 0 {
		c.Duplicates = messaging.DefaultDuplicates
	}
	if c.MaxPending == 0 {
		c.MaxPending = 4096
	}
	invalid := func(field string, value any, want string) (Config, error) {
		return c, fmt.Errorf("%w: jetstream: Config.%s is %v: must be %s", messaging.ErrInvalid, field, value, want)
	}
	switch {
	case !validStream(c.Stream):
		return invalid("Stream", fmt.Sprintf("%q", c.Stream), "1 to 64 letters, digits, _ and -")
	case !validPrefix(c.Prefix):
		return invalid("Prefix", fmt.Sprintf("%q", c.Prefix), "tokens of letters, digits, _ and -, with dots between them, 128 bytes at most")
	case c.Replicas < 0:
		return invalid("Replicas", c.Replicas, "positive, or 0 for the default")
	case c.MaxEvents < 0:
		return invalid("MaxEvents", c.MaxEvents, "positive, or 0 for no bound")
	case c.MaxBytes < 0:
		return invalid("MaxBytes", c.MaxBytes, "positive, or 0 for no bound")
	case c.MaxAge < 0:
		return invalid("MaxAge", c.MaxAge, "positive, or 0 for no bound")
	case c.Duplicates < 100*time.Millisecond:
		return invalid("Duplicates", c.Duplicates, "100ms or more, or 0 for the default")
	case c.MaxAge > 0 && c.MaxAge < c.Duplicates:
		return invalid("MaxAge", c.MaxAge, fmt.Sprintf("no less than Duplicates, %v", c.Duplicates))
	case c.MaxPending < 0:
		return invalid("MaxPending", c.MaxPending, "positive, or 0 for the default")
	}
	return c, nil
}

func validStream(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool { return !validRune(r) })
}

func validPrefix(prefix string) bool {
	return len(prefix) <= 128 && !slices.ContainsFunc(strings.Split(prefix, "."), func(t string) bool {
		return t == "" || strings.ContainsFunc(t, func(r rune) bool { return !validRune(r) })
	})
}

func validRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// minServer is the oldest server that keeps the contract: before it, an id that
// a deposed leader had staged was answered as a duplicate though nothing was
// stored (PUB-3 in a cluster). 2.14.0 lacks that fix again.
var minServer, badServer = [3]int{2, 12, 9}, [3]int{2, 14, 0}

// checkServer refuses a server whose version cannot keep the contract.
func checkServer(version string) error {
	var v [3]int
	// A version that does not parse is a build of somebody's own.
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 3 {
		return nil
	}
	if slices.Compare(v[:], minServer[:]) < 0 || v == badServer {
		return fmt.Errorf("jetstream: the server is version %s, but the contract needs %d.%d.%d or later, without %d.%d.%d: %w",
			version, minServer[0], minServer[1], minServer[2], badServer[0], badServer[1], badServer[2], errors.ErrUnsupported)
	}
	return nil
}

func (c Config) deadStream() string { return c.Stream + "_DEAD" }
func (c Config) deadPrefix() string { return c.Prefix + "_DEAD" }

// stream is the configuration of the log.
func (c Config) stream() natsjs.StreamConfig {
	s := natsjs.StreamConfig{
		Name:        c.Stream,
		Description: "catchment: the log",
		Subjects:    []string{c.Prefix + ".>"},
		Retention:   natsjs.LimitsPolicy,
		Discard:     natsjs.DiscardNew,
		Storage:     c.Storage,
		Replicas:    c.Replicas,
		MaxMsgs:     -1,
		MaxBytes:    -1,
		MaxAge:      c.MaxAge,
		Duplicates:  c.Duplicates,
		AllowDirect: true,
	}
	if c.DiscardOldest {
		s.Discard = natsjs.DiscardOld
	}
	if c.MaxEvents > 0 {
		s.MaxMsgs = c.MaxEvents
	}
	if c.MaxBytes > 0 {
		s.MaxBytes = c.MaxBytes
	}
	return s
}

// dead is the configuration of the stream beside the log.
func (c Config) dead() natsjs.StreamConfig {
	return natsjs.StreamConfig{
		Name:        c.deadStream(),
		Description: "catchment: dead letters, and notes of the broker",
		Subjects:    []string{c.deadPrefix() + ".>"},
		Retention:   natsjs.LimitsPolicy,
		Discard:     natsjs.DiscardNew,
		Storage:     c.Storage,
		Replicas:    c.Replicas,
		MaxMsgs:     -1,
		MaxBytes:    -1,
		Duplicates:  messaging.DefaultDuplicates,
		AllowDirect: true,
		AllowRollup: true,
	}
}

// ensure creates the stream, or checks that the one there is keeps the contract.
func (b *Broker) ensure(ctx context.Context, want natsjs.StreamConfig) (s natsjs.Stream, err error) {
	err = asking(ctx, b.nc, func(ctx context.Context) error {
		s, err = b.js.Stream(ctx, want.Name)
		if errors.Is(err, natsjs.ErrStreamNotFound) {
			s, err = b.js.CreateStream(ctx, want)
			if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) { // somebody was faster
				s, err = b.js.Stream(ctx, want.Name)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("jetstream: stream %q: %w", want.Name, err)
	}
	if diff := differences(s.CachedInfo().Config, want); len(diff) > 0 {
		return nil, fmt.Errorf("jetstream: stream %q: %w: %s", want.Name, messaging.ErrConflict, strings.Join(diff, "; "))
	}
	return s, nil
}

// differences says in what a stream that exists cannot keep the contract, or
// is not what was asked for.
func differences(have, want natsjs.StreamConfig) (diff []string) {
	must := func(ok bool, field string, have, want any) {
		if !ok {
			diff = append(diff, fmt.Sprintf("%s is %v, must be %v", field, have, want))
		}
	}
	must(slices.ContainsFunc(have.Subjects, func(s string) bool { return covers(s, want.Subjects[0]) }), "Subjects", have.Subjects, want.Subjects)
	must(have.Retention == want.Retention, "Retention", have.Retention, want.Retention)
	must(have.Discard == want.Discard, "Discard", have.Discard, want.Discard)
	must(have.Storage == want.Storage, "Storage", have.Storage, want.Storage)
	must(have.Duplicates == want.Duplicates, "Duplicates", have.Duplicates, want.Duplicates)
	must(want.MaxMsgs < 0 || have.MaxMsgs == want.MaxMsgs, "MaxMsgs", have.MaxMsgs, want.MaxMsgs)
	must(want.MaxBytes < 0 || have.MaxBytes == want.MaxBytes, "MaxBytes", have.MaxBytes, want.MaxBytes)
	must(want.MaxAge == 0 || have.MaxAge == want.MaxAge, "MaxAge", have.MaxAge, want.MaxAge)
	must(have.MaxMsgsPerSubject <= 0, "MaxMsgsPerSubject", have.MaxMsgsPerSubject, "unlimited")
	must(have.MaxMsgSize <= 0 || have.MaxMsgSize >= messaging.MaxEventSize, "MaxMsgSize", have.MaxMsgSize, fmt.Sprintf("unlimited, or %d or more", messaging.MaxEventSize))
	must(!have.NoAck, "NoAck", have.NoAck, false)
	must(have.PersistMode == natsjs.DefaultPersistMode, "PersistMode", have.PersistMode, natsjs.DefaultPersistMode)
	must(!have.Sealed, "Sealed", have.Sealed, false)
	must(have.Mirror == nil, "Mirror", have.Mirror, "none")
	must(have.SubjectTransform == nil, "SubjectTransform", have.SubjectTransform, "none")
	must(!want.AllowRollup || have.AllowRollup, "AllowRollup", have.AllowRollup, true)
	return diff
}
