package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
)

var _ messaging.Admin = (*Broker)(nil)

// Subscriptions implements [messaging.Admin]. Members is -1: the server does
// not know how many there are.
func (b *Broker) Subscriptions(ctx context.Context) ([]messaging.Status, error) {
	if err := b.refusal(ctx); err != nil {
		return nil, err
	}
	letters, err := b.countLetters(ctx, ">")
	if err != nil {
		return nil, err
	}
	var all []messaging.Status
	for _, stream := range []natsjs.Stream{b.stream, b.dead} {
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			sub, err := settings(info.Config)
			if err != nil {
				continue // somebody else's
			}
			i, err := b.incarnation(ctx, sub)
			switch {
			case errors.Is(err, messaging.ErrNotFound), err == nil && i.name != info.Name:
				continue // deleted or moved just now
			case err != nil:
				return nil, fmt.Errorf("jetstream: subscription %q: %w", sub.Name, err)
			}
			s := messaging.Status{
				Subscription: sub,
				Pending:      info.NumPending,
				InFlight:     info.NumAckPending,
				Redelivered:  info.NumRedelivered,
				Members:      -1,
			}
			if sub.DeadLettersOf == "" {
				s.DeadLetters = letters[sub.Name]
			}
			if s.Pending > 0 || s.InFlight > 0 {
				if s.Oldest, err = oldest(ctx, stream, info); err != nil {
					return nil, fmt.Errorf("jetstream: subscription %q: %w", sub.Name, err)
				}
			}
			all = append(all, s)
		}
		if err := list.Err(); err != nil {
			return nil, fmt.Errorf("jetstream: list the subscriptions: %w", err)
		}
	}
	slices.SortFunc(all, func(x, y messaging.Status) int {
		return cmp.Or(cmp.Compare(x.DeadLettersOf, y.DeadLettersOf), cmp.Compare(x.Name, y.Name))
	})
	return all, nil
}

// oldest is when the first message above a consumer's ack floor was stored.
func oldest(ctx context.Context, stream natsjs.Stream, info *natsjs.ConsumerInfo) (oldest time.Time, err error) {
	for _, filter := range append(info.Config.FilterSubjects, info.Config.FilterSubject) {
		if filter == "" {
			continue
		}
		msg, err := stream.GetMsg(ctx, info.AckFloor.Stream+1, natsjs.WithGetMsgSubject(filter))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return time.Time{}, err
		}
		if oldest.IsZero() || msg.Time.Before(oldest) {
			oldest = msg.Time
		}
	}
	return oldest, nil
}

// countLetters counts dead letters by subscription, for one or for all, >.
func (b *Broker) countLetters(ctx context.Context, name string) (map[string]uint64, error) {
	prefix := b.letters("")
	filter := prefix + name
	if name != ">" {
		filter += ".>"
	}
	info, err := b.dead.Info(ctx, natsjs.WithSubjectFilter(filter))
	if err != nil {
		return nil, fmt.Errorf("jetstream: count the dead letters: %w", err)
	}
	letters := make(map[string]uint64)
	for subject, n := range info.State.Subjects {
		name, _, _ := strings.Cut(strings.TrimPrefix(subject, prefix), ".")
		letters[name] += n
	}
	return letters, nil
}

// existing returns a subscription that an Admin is to do something to.
func (b *Broker) existing(ctx context.Context, sub messaging.Subscription) (*incarnation, error) {
	if err := b.refusal(ctx); err != nil {
		return nil, err
	}
	if _, err := (messaging.Subscription{Name: sub.Name, DeadLettersOf: sub.DeadLettersOf}).Normalize(); err != nil {
		return nil, err
	}
	return b.incarnation(ctx, sub)
}

// Seek implements [messaging.Admin]. It makes another consumer, so that an ack
// of what the old one delivered settles nothing; members change over.
func (b *Broker) Seek(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
	for {
		if err := b.seek(ctx, sub, to); !errors.Is(err, errMoved) {
			return err
		}
	}
}

// errMoved is why a seek begins anew: another was faster.
var errMoved = errors.New("jetstream: the subscription was moved meanwhile")

func (b *Broker) seek(ctx context.Context, sub messaging.Subscription, to messaging.Start) error {
	old, err := b.existing(ctx, sub)
	if err != nil {
		return err
	}
	next := old.sub
	next.Start = to
	if next, err = next.Normalize(); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("jetstream: seek %q: %w", sub.Name, err) }
	stream, _ := b.log(next)
	config := b.config(next)
	config.Durable += "~" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := stream.CreateConsumer(ctx, config); err != nil {
		return fail(err)
	}
	errs := b.publish.publish(ctx, &nats.Msg{
		Subject: b.record(next),
		Header: nats.Header{
			natsjs.MsgRollup:                 {natsjs.MsgRollupSubject},
			natsjs.ExpectedLastSubjSeqHeader: {strconv.FormatUint(old.record, 10)},
		},
		Data: []byte(config.Durable),
	})
	// What follows is to be done even if ctx has ended: the members of another
	// consumer than the one on record would be those of another subscription.
	defer b.tell(next)
	ctx, cancel := settling(ctx)
	defer cancel()
	if errs != nil {
		// Not to be confused with our own, if its answer was lost.
		if now, _, err := b.lastOf(ctx, b.record(next)); err == nil && string(now) == config.Durable {
			errs = nil
		}
	}
	if errs != nil {
		var api *natsjs.APIError
		if errors.As(errs[0], &api) && (api.ErrorCode == codeWrongSequence || api.ErrorCode == codeWrongSequenceInCluster) {
			return errors.Join(errMoved, stream.DeleteConsumer(ctx, config.Durable))
		}
		if !errors.Is(errs[0], messaging.ErrUnknown) {
			_ = stream.DeleteConsumer(ctx, config.Durable)
		}
		return fail(errs[0])
	}
	// From here on it is moved. What is left to do can be done again.
	err = b.follow(ctx, old, next, config)
	if err == nil {
		err = b.forget(ctx, old)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// follow does to a subscription that was moved what was done meanwhile to the
// consumer that it had: an Update is made up for, and so is a Delete.
func (b *Broker) follow(ctx context.Context, old *incarnation, moved messaging.Subscription, config natsjs.ConsumerConfig) error {
	stream, _ := b.log(moved)
	c, err := stream.Consumer(ctx, old.name)
	if errors.Is(err, natsjs.ErrConsumerNotFound) {
		_, err := b.Delete(ctx, moved)
		return cmp.Or(err, fmt.Errorf("%w: %q was deleted meanwhile", messaging.ErrNotFound, moved.Name))
	}
	if err != nil {
		return err
	}
	now, err := settings(c.CachedInfo().Config)
	if err != nil {
		return err
	}
	if now.Conflict(old.sub) == nil {
		return nil
	}
	now.Start = moved.Start
	_, err = stream.UpdateConsumer(ctx, b.updated(config, now))
	return err
}

// forget removes an incarnation and its notes.
func (b *Broker) forget(ctx context.Context, i *incarnation) error {
	stream, _ := b.log(i.sub)
	if err := stream.DeleteConsumer(ctx, i.name); err != nil && !errors.Is(err, natsjs.ErrConsumerNotFound) {
		return err
	}
	return b.dead.Purge(ctx, natsjs.WithPurgeSubject(i.note+">"))
}

// tell makes the members of a subscription look again.
func (b *Broker) tell(sub messaging.Subscription) { _ = b.nc.Publish(b.changed(sub), nil) }

// Update implements [messaging.Admin]. A delivery that is out keeps the deadline
// it has, which the server does not know if AckWait becomes shorter.
func (b *Broker) Update(ctx context.Context, sub messaging.Subscription) error {
	if err := b.refusal(ctx); err != nil {
		return err
	}
	sub, err := sub.Normalize()
	if err != nil {
		return err
	}
	defer b.tell(sub) // also if the answer is lost
	for {
		old, err := b.existing(ctx, sub)
		if err != nil {
			return err
		}
		sub.Start = old.sub.Start
		stream, _ := b.log(sub)
		_, failed := stream.UpdateConsumer(ctx, b.updated(old.consumer.CachedInfo().Config, sub))
		// Once it was moved, that was for nothing.
		_, record, err := b.lastOf(ctx, b.record(sub))
		if err == nil && (record != old.record || errors.Is(failed, natsjs.ErrConsumerDoesNotExist)) {
			continue
		}
		if err = cmp.Or(failed, err); err != nil {
			return fmt.Errorf("jetstream: update %q: %w", sub.Name, err)
		}
		return nil
	}
}

// updated is a consumer's configuration with other settings.
func (b *Broker) updated(config natsjs.ConsumerConfig, sub messaging.Subscription) natsjs.ConsumerConfig {
	want := b.config(sub)
	config.AckWait = want.AckWait
	config.MaxAckPending = want.MaxAckPending
	config.InactiveThreshold = want.InactiveThreshold
	config.FilterSubject, config.FilterSubjects = "", want.FilterSubjects
	config.Metadata = want.Metadata
	return config
}

// Delete implements [messaging.Admin].
func (b *Broker) Delete(ctx context.Context, sub messaging.Subscription) (discarded uint64, err error) {
	old, err := b.existing(ctx, sub)
	if err != nil {
		return 0, err
	}
	defer b.tell(sub)
	for {
		info := old.consumer.CachedInfo()
		discarded = info.NumPending + uint64(info.NumAckPending)
		if err = b.forget(ctx, old); err == nil {
			err = b.dead.Purge(ctx, natsjs.WithPurgeSubject(b.record(sub)), natsjs.WithPurgeSequence(old.record+1))
		}
		if err == nil {
			old, err = b.existing(ctx, sub) // again, if it was moved meanwhile
		}
		switch {
		case errors.Is(err, messaging.ErrNotFound):
			return discarded, nil
		case err != nil:
			return 0, fmt.Errorf("jetstream: delete %q: %w", sub.Name, err)
		}
	}
}

// DeleteDeadLetters implements [messaging.Admin].
func (b *Broker) DeleteDeadLetters(ctx context.Context, name string) (discarded uint64, err error) {
	raw, missing := b.Undecodable(ctx, name)
	if missing != nil && !errors.Is(missing, messaging.ErrNotFound) {
		return 0, missing
	}
	letters, err := b.countLetters(ctx, name)
	if err != nil {
		return 0, err
	}
	discarded = letters[name] + uint64(len(raw))
	if discarded == 0 {
		return 0, missing
	}
	for _, subject := range []string{b.letters(name) + ".>", b.raw(name)} {
		if err := b.dead.Purge(ctx, natsjs.WithPurgeSubject(subject)); err != nil {
			return 0, fmt.Errorf("jetstream: delete the dead letters of %q: %w", name, err)
		}
	}
	return discarded, nil
}

// Undecodable implements [messaging.Admin].
func (b *Broker) Undecodable(ctx context.Context, name string) ([]*messaging.DecodeError, error) {
	_, missing := b.existing(ctx, messaging.Subscription{Name: name})
	if missing != nil && !errors.Is(missing, messaging.ErrNotFound) {
		return nil, missing
	}
	var all []*messaging.DecodeError
	for seq := uint64(1); ; {
		msg, err := b.dead.GetMsg(ctx, seq, natsjs.WithGetMsgSubject(b.raw(name)))
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			if len(all) > 0 {
				missing = nil // it was deleted, and left this
			}
			slices.SortFunc(all, func(x, y *messaging.DecodeError) int { return cmp.Compare(x.Sequence, y.Sequence) })
			return all, missing
		}
		if err != nil {
			return nil, fmt.Errorf("jetstream: what did not decode of %q: %w", name, err)
		}
		all = append(all, decodeError(name, msg))
		seq = msg.Sequence + 1
	}
}

// raw is the subject of what a subscription met that was no event.
func (b *Broker) raw(name string) string { return b.cfg.deadPrefix() + ".raw." + name }

// decodeError reads a message that was kept as it was.
func decodeError(name string, msg *natsjs.RawStreamMsg) *messaging.DecodeError {
	bad := &messaging.DecodeError{Subscription: name, Header: make(map[string][]string), Body: msg.Data}
	for key, values := range msg.Header {
		if key, ok := strings.CutPrefix(key, rawPrefix); ok {
			bad.Header[key] = values
		}
	}
	d, _ := messaging.DeadLetterFrom(infoOf(msg.Header))
	bad.Sequence, bad.Err = d.Sequence, errors.New(d.Reason)
	return bad
}
