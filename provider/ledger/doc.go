// Package ledger is a durable broker in a directory: the log of a program that
// runs on one machine and wants to lose nothing, without a server beside it.
//
//	broker, err := ledger.Open("/var/lib/shop", nil)
//	if err != nil {
//		return err
//	}
//	defer broker.Close()
//
// # Behaviour
//
// It keeps the whole contract of package messaging. One process has the
// directory at a time; all publishers and members are in that process. Of the
// capabilities it offers Durable, Synced, OrderedPublish, Positions,
// ExactAttempts, Fenced and Expires, and ConfirmedAck if Options ask for it.
//
// Publish returns when the events are on the disk. Calls at the same time share
// a sync, so publish from many goroutines, or many events at a time. What that
// costs depends on the disk and neither on the number of subscriptions nor on
// the length of the log.
//
// A subscription reads ahead up to 1024 events or 256 KiB, and hands out what it
// has read, in order. Memory grows with MaxInFlight and not with the log.
// Deadlines and delays are kept to the precision of the machine's timers.
//
// # What a crash leaves
//
// After the process was killed: every event whose Publish returned, every
// subscription and Seek, every dead letter, and exact attempts. What a member
// had received and not settled has failed, once; what it had not received has
// not. That holds for a handler that kills its own process, too: it meets
// MaxAttempts. Acks of the last moments may be undone, those of Options.AckDelay
// at most, unless ConfirmedAck is set.
//
// After the loss of power the same holds, but that the attempts of the last
// moments may be forgotten: the record of a delivery is with the operating
// system when Receive returns, and on the disk only some milliseconds later.
//
// After a Close nothing has failed and nothing is undone.
//
// A disk that is full or broken makes Publish fail, with the reason. The broker
// stores nothing more then, and its directory stays as it was; what was stored
// can be received, as long as the journal can be written. Close it, mend the
// disk, and Open it again. Events that are damaged are reported by the
// subscription that comes to them, with their sequences, and passed over: the
// others are delivered. What may pass, such as too many open files, is reported
// and tried again.
//
// # Files
//
// A directory has
//
//	FORMAT              "catchment ledger 1": the format of all that follows; and
//	                    "new" while the directory is being made
//	LOCK                locked while a process has the directory
//	HOLDER              the number of that process
//	store/              a Pebble database
//	journal-000000000012  what subscriptions did since their rows were stored
//
// A version of this package refuses a format that is newer than its own. Numbers
// are big-endian in keys, and variable in length in values, as encoding/binary
// writes them (uvarint), unless said otherwise; a time is the zigzag of its
// nanoseconds since 1970, and 0 is none; a string has its length before it. Each
// value begins with a byte for its own format, 1.
//
// Keys of the database:
//
//	l...              the log, in the form of package queue
//	n                 the last number given to an incarnation or to dead letters, 8 bytes
//	j                 the first journal that says more than the rows, 8 bytes
//	s OF 0 NAME       a subscription: its incarnation and its settings, as JSON
//	p INCARNATION     where a subscription is: next, looked, missed, left, and
//	                  each event that is out: distance to the one before,
//	                  attempt<<3|flags, and if flag 2 is set due, failed, reason
//	d NAME            the dead letters of a subscription: number, next sequence, how many
//	e NUMBER SEQUENCE a dead letter: stored, subscription, reason, attempts,
//	                  sequence, stored and died of the event, and the event
//	b INCARNATION SEQUENCE  the event was buried, and neither p nor a journal may know
//	r NAME 0 SEQUENCE a message that did not decode: sequence, why, and the message
//
// An entry of the log is a byte, the type, and
//
//	1  the attributes, as event.AppendAttributes writes them, and the data
//	2  headers (how many; name, how many values, values) and the body of a
//	   message that somebody else has put there
//
// An incarnation is a subscription since it was made, or since the last Seek:
// what is written of an older one says nothing.
//
// A journal begins with "catchment journal", a byte for its format, its number,
// the length of the journal before it, 8 bytes each, and the CRC-32C of all that.
// Frames follow: 4 bytes for the length of the records, 4 for their CRC-32C, and
// the records. The first frame that is not whole ends it, and makes journals
// after it void. A record is its kind, the incarnation, a sequence and
//
//	1 handed out for the first time
//	2 settled
//	3 waits: attempt, due, failed, reason
//	4 handed out again: attempt
//	5 passed over, as everything before: events discarded and not reported
//	6 the last member has closed: when; or none: there is a member again
//	7 settled, and the dead letter removed
//	8 is to become a dead letter: attempt, failed, reason
//
// On Linux the journal is written through mapped memory, which the operating
// system has as soon as it is written, and so outlives the process.
//
// # Testing
//
// The tests let a file system in memory crash in the middle of writes, in a
// bubble of [testing/synctest]; see README.md. For tests of services use
// provider/memory: it is faster, and can be hostile.
package ledger
