package ledger

import "encoding/binary"

// The first byte of each key in the database. See the package comment.
const (
	keyLog      = 'l' // what package queue keeps
	keyCounter  = 'n' // the last number given to an incarnation or to dead letters
	keyJournal  = 'j' // the first journal that says more than the rows
	keySettings = 's' // a subscription, by DeadLettersOf and Name
	keyState    = 'p' // where an incarnation of a subscription is
	keyLetters  = 'd' // the dead letters of a subscription, by its name
	keyLetter   = 'e' // one of them, by number and sequence
	keyBuried   = 'b' // an event that was buried, and by which incarnation
	keyRaw      = 'r' // what a subscription could not decode
)

func settingsKey(id identity) []byte {
	k := append([]byte{keySettings}, id.deadLettersOf...)
	return append(append(k, 0), id.name...)
}

func stateKey(inc uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyState}, inc)
}

func lettersKey(name string) []byte { return append([]byte{keyLetters}, name...) }

func letterKey(id, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{keyLetter}, id), seq)
}

func buriedKey(inc, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{keyBuried}, inc), seq)
}

func rawKey(name string, seq uint64) []byte {
	k := append([]byte{keyRaw}, name...)
	return binary.BigEndian.AppendUint64(append(k, 0), seq)
}
