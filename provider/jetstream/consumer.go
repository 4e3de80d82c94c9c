package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
	"github.com/catchment-events/catchment/reactor"
)

// A subscription is a durable consumer. What was asked for stands in the
// consumer's metadata, under this key; what the server needs to know of it, in
// its configuration.
const metaSettings = "catchment-subscription"

// stored is a subscription as it is kept.
type stored struct {
	Name          string          `json:"name"`
	Types         []string        `json:"types,omitempty"`
	AckWait       time.Duration   `json:"ackWait"`
	MaxInFlight   int             `json:"maxInFlight"`
	Start         messaging.Start `json:"start"`
	MaxAttempts   int             `json:"maxAttempts,omitempty"`
	Expires       time.Duration   `json:"expires,omitempty"`
	DeadLettersOf string          `json:"deadLettersOf,omitempty"`
}

// durable is the name of a subscription's consumer: no subscription's name has
// an = in it.
func durable(sub messaging.Subscription) string {
	if sub.DeadLettersOf != "" {
		return sub.DeadLettersOf + "=" + sub.Name
	}
	return sub.Name
}

// letters is the prefix of the subjects of a subscription's dead letters.
func (b *Broker) letters(name string) string { return b.cfg.deadPrefix() + ".letter." + name }

// log returns the stream that a subscription reads, and its prefix there.
func (b *Broker) log(sub messaging.Subscription) (natsjs.Stream, string) {
	if sub.DeadLettersOf != "" {
		return b.dead, b.letters(sub.DeadLettersOf)
	}
	return b.stream, b.cfg.Prefix
}

// config is the configuration of a subscription's consumer.
func (b *Broker) config(sub messaging.Subscription) natsjs.ConsumerConfig {
	_, prefix := b.log(sub)
	kept, err := json.Marshal(stored(sub))
	if err != nil {
		panic(err) // plain values, all of them
	}
	c := natsjs.ConsumerConfig{
		Durable:        durable(sub),
		Description:    "catchment: subscription " + sub.Name,
		DeliverPolicy:  natsjs.DeliverAllPolicy,
		AckPolicy:      natsjs.AckExplicitPolicy,
		AckWait:        sub.AckWait + Slack,
		MaxDeliver:     -1, // we count, and dead letters are ours [DLQ-1]
		FilterSubjects: filters(prefix, sub.Types),
		ReplayPolicy:   natsjs.ReplayInstantPolicy,
		MaxAckPending:  sub.MaxInFlight,
		Metadata:       map[string]string{metaSettings: string(kept)},
	}
	if sub.Expires > 0 {
		// The server counts from a pull's beginning, when its client died.
		c.InactiveThreshold = sub.Expires + pullExpiry
	}
	if sub.Start.New() {
		c.DeliverPolicy = natsjs.DeliverNewPolicy
	}
	if t, ok := sub.Start.Time(); ok {
		c.DeliverPolicy, c.OptStartTime = natsjs.DeliverByStartTimePolicy, &t
	}
	if seq, ok := sub.Start.Sequence(); ok && seq > 0 {
		c.DeliverPolicy, c.OptStartSeq = natsjs.DeliverByStartSequencePolicy, seq
	}
	return c
}

// An incarnation is a subscription's consumer, as long as it is not moved: a
// Seek makes another one, under another name, so that acks of what the old one
// delivered mean nothing [ADM-2]. Which one is the current stands beside the
// dead letters, once a subscription has been moved.
type incarnation struct {
	sub          messaging.Subscription
	consumer     natsjs.Consumer
	stream, name string
	replies      string // prefix of the subjects of its acknowledgements
	note         string // prefix of the subjects of its notes
	moved        bool   // by Seek
	record       uint64 // the sequence of what says so
	most         int    // fetched ahead by a member, at most
	behind       bool   // there may have been events that it had not delivered
}

// record is the subject that holds the name of a subscription's consumer.
func (b *Broker) record(id messaging.Subscription) string {
	return b.cfg.deadPrefix() + ".current." + durable(id)
}

// changed is the subject on which members hear that they should look again.
func (b *Broker) changed(id messaging.Subscription) string {
	return b.cfg.Prefix + "_CHANGED." + durable(id)
}

// incarnation returns the current one of a subscription that exists.
func (b *Broker) incarnation(ctx context.Context, id messaging.Subscription) (*incarnation, error) {
	name := durable(id)
	recorded, record, err := b.lastOf(ctx, b.record(id))
	if err != nil {
		return nil, err
	}
	if record > 0 {
		name = string(recorded)
	}
	stream, _ := b.log(id)
	c, err := stream.Consumer(ctx, name)
	if errors.Is(err, natsjs.ErrConsumerNotFound) {
		if _, now, err := b.lastOf(ctx, b.record(id)); err != nil {
			return nil, err
		} else if now != record {
			return b.incarnation(ctx, id) // it was moved between the two looks
		}
		return nil, &notFoundError{id.Name, record, err}
	}
	if err != nil {
		return nil, err
	}
	info := c.CachedInfo()
	sub, err := settings(info.Config)
	if err != nil {
		return nil, err
	}
	behind := info.NumPending > 0
	if b.bounded && !behind {
		// A server counts what is pending a moment late.
		log, err := stream.Info(ctx)
		if err != nil {
			return nil, err
		}
		behind = info.Delivered.Stream < log.State.LastSeq
	}
	return &incarnation{
		behind:   behind,
		sub:      sub,
		consumer: c,
		stream:   info.Stream,
		name:     name,
		replies:  "$JS.ACK." + info.Stream + "." + name + ".",
		note:     fmt.Sprintf("%s.credit.%s.%d.", b.cfg.deadPrefix(), name, info.Created.UnixNano()),
		moved:    record > 0,
		record:   record,
		most:     max(1, sub.MaxInFlight/2),
	}, nil
}

// A notFoundError says that there is no such subscription, and how that was seen.
type notFoundError struct {
	name   string
	record uint64 // the sequence of a record that names a consumer, which is gone
	err    error
}

func (e *notFoundError) Error() string {
	return fmt.Sprintf("%v: %q: %v", messaging.ErrNotFound, e.name, e.err)
}

func (e *notFoundError) Unwrap() []error { return []error{messaging.ErrNotFound, e.err} }

// subscribe returns the subscription's incarnation, created if it is missing.
func (b *Broker) subscribe(ctx context.Context, sub messaging.Subscription) (*incarnation, error) {
	i, err := b.incarnation(ctx, sub)
	if errors.Is(err, messaging.ErrNotFound) {
		if sub.DeadLettersOf != "" {
			if _, err := b.incarnation(ctx, messaging.Subscription{Name: sub.DeadLettersOf}); err != nil {
				return nil, fmt.Errorf("dead letters: %w", err)
			}
		}
		// What is left of one by that name is nothing to this one; what has
		// come since we looked is not left.
		var missing *notFoundError
		if errors.As(err, &missing) && missing.record > 0 {
			if err := b.dead.Purge(ctx, natsjs.WithPurgeSubject(b.record(sub)), natsjs.WithPurgeSequence(missing.record+1)); err != nil {
				return nil, err
			}
		}
		if err := b.create(ctx, sub); err != nil {
			return nil, err
		}
		i, err = b.incarnation(ctx, sub)
	}
	if err != nil {
		return nil, err
	}
	if err := sub.Conflict(i.sub); err != nil {
		return nil, err
	}
	return i, effective(sub, i.consumer.CachedInfo().Config, b.config(sub))
}

// create makes the subscription's consumer, if nobody is faster. A server that
// has just deleted one by that name may still be clearing it away, and then
// fails for a moment.
func (b *Broker) create(ctx context.Context, sub messaging.Subscription) error {
	stream, _ := b.log(sub)
	for try := 1; ; try++ {
		_, err := stream.CreateConsumer(ctx, b.config(sub))
		if err == nil || errors.Is(err, natsjs.ErrConsumerExists) {
			return nil
		}
		var api *natsjs.APIError
		if !errors.As(err, &api) || api.Code != 500 || try == 10 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(createBackoff(try)):
		}
	}
}

var createBackoff = reactor.Exponential(10*time.Millisecond, 500*time.Millisecond)

// settings reads a subscription back from its consumer.
func settings(c natsjs.ConsumerConfig) (messaging.Subscription, error) {
	var have stored
	if err := json.Unmarshal([]byte(c.Metadata[metaSettings]), &have); err != nil {
		return messaging.Subscription{}, fmt.Errorf("%w: consumer %q was not made by this provider: metadata %q: %w",
			messaging.ErrConflict, c.Durable, metaSettings, err)
	}
	return messaging.Subscription(have), nil
}

// effective compares what the server made of a configuration with what was
// asked for: fields that the contract rests on and that no Subscription names.
func effective(sub messaging.Subscription, have, want natsjs.ConsumerConfig) error {
	conflict := func(field string, have, want any) error {
		return fmt.Errorf("%w: subscription %q: the consumer's %s is %v, must be %v", messaging.ErrConflict, sub.Name, field, have, want)
	}
	filters := have.FilterSubjects
	if have.FilterSubject != "" {
		filters = []string{have.FilterSubject}
	}
	switch {
	case have.AckPolicy != want.AckPolicy:
		return conflict("AckPolicy", have.AckPolicy, want.AckPolicy)
	case have.AckWait != want.AckWait:
		return conflict("AckWait", have.AckWait, want.AckWait)
	case have.MaxAckPending != want.MaxAckPending:
		return conflict("MaxAckPending", have.MaxAckPending, want.MaxAckPending)
	case have.InactiveThreshold != want.InactiveThreshold:
		return conflict("InactiveThreshold", have.InactiveThreshold, want.InactiveThreshold)
	case have.MaxDeliver != want.MaxDeliver:
		return conflict("MaxDeliver", have.MaxDeliver, want.MaxDeliver)
	case len(have.BackOff) > 0:
		return conflict("BackOff", have.BackOff, "none")
	case have.HeadersOnly:
		return conflict("HeadersOnly", true, false)
	case have.PriorityPolicy != want.PriorityPolicy:
		return conflict("PriorityPolicy", have.PriorityPolicy, want.PriorityPolicy)
	case !slices.Equal(slices.Sorted(slices.Values(filters)), slices.Sorted(slices.Values(want.FilterSubjects))):
		return conflict("FilterSubjects", filters, want.FilterSubjects)
	}
	return nil
}
