package event

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/types"
)

// canonical returns the canonical string of an extension value. It accepts what
// the SDK's types.Format accepts, except for floats that are not whole (the SDK
// truncates them), nil, pointers to bools, numbers and strings, and times that
// RFC 3339 has no notation for.
func canonical(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case time.Time, *time.Time, types.Timestamp, *types.Timestamp:
		return canonicalTime(v)
	case url.URL, *url.URL, types.URI, *types.URI, types.URIRef, *types.URIRef:
		return canonicalURL(v)
	}
	n, ok := integer(v)
	switch {
	case !ok:
		return "", fmt.Errorf("a value of type %T is none of CloudEvents' types", v)
	case n < math.MinInt32 || n > math.MaxInt32 || n != math.Trunc(n):
		return "", errors.New("a number must be whole and in the range of int32")
	}
	return strconv.Itoa(int(n)), nil
}

// integer returns the value of any Go number. A float64 holds each of them that can
// be an Integer, and is out of range for each that cannot.
func integer(v any) (float64, bool) {
	switch v := v.(type) {
	case int32:
		return float64(v), true
	case int:
		return float64(v), true
	case int8:
		return float64(v), true
	case int16:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint:
		return float64(v), true
	case uint8:
		return float64(v), true
	case uint16:
		return float64(v), true
	case uint32:
		return float64(v), true
	case uint64:
		return float64(v), true
	case uintptr:
		return float64(v), true
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func canonicalTime(v any) (string, error) {
	var t *time.Time
	switch v := v.(type) {
	case time.Time:
		t = &v
	case *time.Time:
		t = v
	case types.Timestamp:
		t = &v.Time
	case *types.Timestamp:
		if v != nil {
			t = &v.Time
		}
	}
	if t == nil {
		return "", errNil
	}
	if !timeInRange(*t) {
		return "", errTimeRange
	}
	return string(appendTime(nil, *t)), nil
}

func canonicalURL(v any) (string, error) {
	var u *url.URL
	switch v := v.(type) {
	case url.URL:
		u = &v
	case *url.URL:
		u = v
	case types.URI:
		u = &v.URL
	case *types.URI:
		if v != nil {
			u = &v.URL
		}
	case types.URIRef:
		u = &v.URL
	case *types.URIRef:
		if v != nil {
			u = &v.URL
		}
	}
	if u == nil {
		return "", errNil
	}
	return u.String(), nil
}

var errNil = errors.New("the value is nil")
