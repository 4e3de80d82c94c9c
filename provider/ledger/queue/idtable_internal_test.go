package queue

import (
	"testing"

	"pgregory.net/rapid"
)

// A model of an idTable is a map. Few tables are in use, so that they fill.
func TestIDTableIsAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var ids [][16]byte // a number is an index here
		tb := newIDTable(func(no uint64) *[16]byte { return &ids[no] })
		model := map[[16]byte]uint64{}
		put := func(rt *rapid.T, id [16]byte) {
			n, was := model[id]
			s, old := tb.put(&id)
			if old != was || old && s.no() != n {
				rt.Fatalf("put(%x): %d, %t, want %d, %t", id, s.no(), old, n, was)
			}
			s.set(uint64(len(ids)))
			model[id] = uint64(len(ids))
			ids = append(ids, id)
		}
		id := func(rt *rapid.T) (id [16]byte) {
			id[0], id[9] = byte(rapid.IntRange(1, 40).Draw(rt, "id")), 1
			return id
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) { put(rt, id(rt)) },
			"put many": func(rt *rapid.T) {
				for i := range 1000 {
					put(rt, [16]byte{byte(i), byte(i >> 8), 7})
				}
			},
			"find": func(rt *rapid.T) {
				id := id(rt)
				n, was := model[id]
				if no, ok := tb.find(&id); ok != was || was && no != n {
					rt.Fatalf("find(%x): %d, %t, want %d, %t", id, no, ok, n, was)
				}
			},
			"delete": func(rt *rapid.T) {
				id := id(rt)
				tb.delete(&id, model[id])
				delete(model, id)
			},
			"delete by another number": func(rt *rapid.T) {
				id := id(rt)
				tb.delete(&id, 1<<39)
			},
			"delete many": func(rt *rapid.T) {
				for i := range 1000 {
					id := [16]byte{byte(i), byte(i >> 8), 7}
					tb.delete(&id, model[id])
					delete(model, id)
				}
			},
			"": func(rt *rapid.T) {
				n := 0
				for i := range tb.tables {
					n += tb.tables[i].used
				}
				if n != len(model) {
					rt.Fatalf("it holds %d, want %d", n, len(model))
				}
				for id, n := range model {
					if no, ok := tb.find(&id); !ok || no != n {
						rt.Fatalf("find(%x): %d, %t, want %d", id, no, ok, n)
					}
				}
			},
		})
	})
}

func TestIDTableGivesMemoryBack(t *testing.T) {
	const n = 200_000
	ids := make([][16]byte, n)
	tb := newIDTable(func(no uint64) *[16]byte { return &ids[no] })
	for i := range ids {
		ids[i] = [16]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}
		s, _ := tb.put(&ids[i])
		s.set(uint64(i))
	}
	for i := range ids {
		tb.delete(&ids[i], uint64(i))
	}
	slots := 0
	for i := range tb.tables {
		slots += len(tb.tables[i].slots)
	}
	if slots > idTables*idMinSlots {
		t.Errorf("an empty table has %d slots", slots)
	}
}
