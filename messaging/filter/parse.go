package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/catchment-events/catchment/event"
)

var dialects = []string{"exact", "prefix", "suffix", "all", "any", "not"}

// maxDepth bounds how deep filters nest.
const maxDepth = 64

// Parse returns the filter that is written in JSON as the Subscriptions API has
// it: an object with a dialect as its only key, or an array of such objects,
// which means all of them, and matches every event if it is empty.
//
//	{"any": [
//		{"prefix": {"type": "order.", "tenant": "acme"}},
//		{"not": {"exact": {"source": "/test"}}}
//	]}
//
// Several attributes in one object must all match. Everything else is an error
// that says where: an unknown dialect, which it names together with those that
// there are; another number of dialects in an object than one; the name of an
// attribute that no CloudEvent can have; an empty value, array or object; a key
// that occurs twice; filters that nest more than 64 deep.
func Parse(json []byte) (Filter, error) {
	f, err := parse(json)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	return f, nil
}

func parse(text []byte) (Filter, error) {
	if !json.Valid(text) {
		return nil, errors.New("is not valid JSON")
	}
	text = bytes.TrimSpace(text)
	if text[0] != '[' {
		return parseObject(text, 0)
	}
	filters, err := parseArray(text, 0)
	switch {
	case err != nil:
		return nil, err
	case len(filters) == 0:
		return func(event.Event) bool { return true }, nil
	}
	return All(filters...), nil
}

// parseObject and parseArray are given valid JSON.

func parseObject(text []byte, depth int) (Filter, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("filters nest more than %d deep", maxDepth)
	}
	keys, err := members(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("a filter: %w", err)
	case len(keys) != 1:
		return nil, fmt.Errorf("a filter has one dialect as its only key, this one has %d keys", len(keys))
	}
	dialect := keys[0].key
	if !slices.Contains(dialects, dialect) {
		return nil, fmt.Errorf("unknown dialect %.64q: there are %s", dialect, strings.Join(dialects, ", "))
	}
	f, err := parseDialect(dialect, keys[0].value, depth)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dialect, err)
	}
	return f, nil
}

func parseDialect(dialect string, text []byte, depth int) (Filter, error) {
	switch dialect {
	case "all", "any":
		filters, err := parseArray(text, depth)
		switch {
		case err != nil:
			return nil, err
		case len(filters) == 0:
			return nil, errors.New("the array is empty")
		case dialect == "any":
			return Any(filters...), nil
		}
		return All(filters...), nil
	case "not":
		f, err := parseObject(text, depth+1)
		if err != nil {
			return nil, err
		}
		return Not(f), nil
	}
	return parseComparisons(text, comparisons[dialect])
}

func parseArray(text []byte, depth int) ([]Filter, error) {
	if text[0] != '[' {
		return nil, errors.New("must be an array of filters")
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(text, &elements); err != nil {
		return nil, err
	}
	filters := make([]Filter, len(elements))
	for i, element := range elements {
		var err error
		if filters[i], err = parseObject(element, depth+1); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return filters, nil
}

func parseComparisons(text []byte, matches func(have, want string) bool) (Filter, error) {
	attributes, err := members(text)
	switch {
	case err != nil:
		return nil, err
	case len(attributes) == 0:
		return nil, errors.New("there is no attribute to compare")
	}
	filters := make([]Filter, len(attributes))
	for i, a := range attributes {
		var value *string
		if err := json.Unmarshal(a.value, &value); err != nil || value == nil {
			return nil, fmt.Errorf("attribute %.64q: the value must be a string", a.key)
		}
		if filters[i], err = compare(a.key, *value, matches); err != nil {
			return nil, err
		}
	}
	if len(filters) == 1 {
		return filters[0], nil
	}
	return All(filters...), nil
}

// A member is one of an object.
type member struct {
	key   string
	value json.RawMessage
}

// members takes an object apart. Decoding into a map would keep the last of
// those with the same key only.
func members(text []byte) ([]member, error) {
	if text[0] != '{' {
		return nil, errors.New("must be an object")
	}
	var list []member
	seen := make(map[string]bool)
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{key: token.(string)}
		if seen[m.key] {
			return nil, fmt.Errorf("key %.64q occurs twice", m.key)
		}
		seen[m.key] = true
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}
