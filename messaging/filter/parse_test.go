package filter_test

import (
	"strings"
	"testing"

	"github.com/catchment-events/catchment/messaging/filter"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]bool{
		`{"exact": {"type": "order.placed"}}`:                               true,
		`{"exact": {"type": "order.placed", "tenant": "acme"}}`:             true,
		`{"exact": {"type": "order.placed", "tenant": "x"}}`:                false,
		`{"exact": {"nobody": "x"}}`:                                        false,
		`{"exact": {"exint": "-42"}}`:                                       true,
		`{"prefix": {"type": "order.", "subject": "customer/"}}`:            true,
		`{"prefix": {"type": "placed"}}`:                                    false,
		`{"suffix": {"type": ".placed", "subject": "4711"}}`:                true,
		`{"suffix": {"type": ".placed", "subject": "customer/"}}`:           false,
		`{"all": [{"exact": {"tenant": "acme"}}, {"exact": {"id": "17"}}]}`: true,
		`{"all": [{"exact": {"tenant": "acme"}}, {"exact": {"id": "18"}}]}`: false,
		`{"any": [{"exact": {"tenant": "x"}}, {"exact": {"id": "17"}}]}`:    true,
		`{"any": [{"exact": {"tenant": "x"}}, {"exact": {"id": "18"}}]}`:    false,
		`{"not": {"exact": {"tenant": "acme"}}}`:                            false,
		`{"not": {"any": [{"exact": {"nobody": "x"}}]}}`:                    true,
		`[]`: true,
		` [ {"exact": {"tenant": "acme"}} , {"exact": {"id": "17"}} ] `: true,
		`[{"exact": {"tenant": "acme"}}, {"exact": {"id": "18"}}]`:      false,
		`{"\u0065xact": {"t\u0079pe": "order\u002eplaced"}}`:            true,
	} {
		f, err := filter.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f(full()); got != want {
			t.Errorf("%s matches: %v, want %v", text, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat(`{"not": `, 100) + `{"exact": {"id": "1"}}` + strings.Repeat(`}`, 100)
	deepArray := strings.Repeat(`{"all": [`, 100) + `{"exact": {"id": "1"}}` + strings.Repeat(`]}`, 100)
	for text, want := range map[string]string{
		``:        "not valid JSON",
		`{`:       "not valid JSON",
		`{} {}`:   "not valid JSON",
		`null`:    "must be an object",
		`"exact"`: "must be an object",
		`[null]`:  "[0]: a filter: must be an object",
		`[[]]`:    "[0]: a filter: must be an object",
		`{}`:      "has 0 keys",
		`{"exact": {"id": "1"}, "prefix": {"id": "1"}}`: "has 2 keys",
		`{"exact": {"id": "1"}, "exact": {"id": "2"}}`:  `"exact" occurs twice`,
		`{"sql": "type = 'x'"}`:                         `unknown dialect "sql": there are exact, prefix, suffix, all, any, not`,
		`{"Exact": {"id": "1"}}`:                        `unknown dialect "Exact"`,
		`{"exact": "x"}`:                                "exact: must be an object",
		`{"exact": {}}`:                                 "exact: there is no attribute",
		`{"exact": {"id": ""}}`:                         `exact: attribute "id": the value to compare with is empty`,
		`{"exact": {"": "x"}}`:                          `exact: attribute "": no CloudEvent has`,
		`{"prefix": {"Type": "x"}}`:                     `prefix: attribute "Type": no CloudEvent has`,
		`{"suffix": {"data": "x"}}`:                     `suffix: attribute "data": no CloudEvent has`,
		`{"exact": {"exint": 1}}`:                       `exact: attribute "exint": the value must be a string`,
		`{"exact": {"id": null}}`:                       `exact: attribute "id": the value must be a string`,
		`{"exact": {"id": "1", "id": "2"}}`:             `exact: key "id" occurs twice`,
		`{"all": []}`:                                   "all: the array is empty",
		`{"any": []}`:                                   "any: the array is empty",
		`{"all": {"exact": {"id": "1"}}}`:               "all: must be an array",
		`{"any": null}`:                                 "any: must be an array",
		`{"not": []}`:                                   "not: a filter: must be an object",
		`{"any": [{"exact": {"id": "1"}}, {"all": [{"not": {"like": {"id": "1"}}}]}]}`: `any: [1]: all: [0]: not: unknown dialect "like"`,
		deep:      "nest more than 64 deep",
		deepArray: "nest more than 64 deep",
	} {
		f, err := filter.Parse([]byte(text))
		if err == nil || f != nil || !strings.HasPrefix(err.Error(), "filter: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error is %v, want %s", text, err, want)
		}
	}
}

// FuzzParse holds Parse to filters that match without panicking, and to giving
// either a filter or an error.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"exact": {"type": "order.placed", "id": "1"}}`, `[{"not": {"prefix": {"time": "2026"}}}]`, `[]`, `{"all": [null]}`,
		`{"any": [{"suffix": {"exint": "2"}}, {"sql": ""}]}`, `{"exact": {"id": "1", "id": "2"}}`, `[`, "\xff", `{"not": {"not": {}}}`,
	} {
		f.Add([]byte(seed))
	}
	e := full()
	f.Fuzz(func(t *testing.T, text []byte) {
		match, err := filter.Parse(text)
		if (match == nil) == (err == nil) {
			t.Fatalf("neither or both of filter and error: %v", err)
		}
		if match != nil {
			match(e)
		}
	})
}
