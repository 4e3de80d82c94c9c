package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Data returns e's data as a T, which depends on both:
//
//   - a []byte or a [json.RawMessage] is the data as it is, whatever its type
//   - under a JSON content type (*/json, */*+json, any case) or none, the data is
//     decoded as [json.Unmarshal] does
//   - a string is the data itself under any other text/* content type
//
// Everything else is an error, and so is no data: use len(e.Data()) to tell. The
// result shares no memory with e. For content types of your own, ask for a []byte
// and decode it.
func Data[T any](e Event) (T, error) {
	var v T
	err := decodeData(e, &v)
	return v, err
}

func decodeData(e Event, target any) error {
	if len(e.DataEncoded) == 0 {
		return errors.New("event: data: the event has none")
	}
	c, err := contextOf(e)
	if err != nil {
		return err
	}
	contentType := valueOf(c.DataContentType)
	switch v := target.(type) {
	case *[]byte:
		*v = bytes.Clone(e.DataEncoded)
		return nil
	case *json.RawMessage:
		*v = bytes.Clone(e.DataEncoded)
		return nil
	case *string:
		if isText(contentType) && !isJSON(contentType) {
			*v = string(e.DataEncoded)
			return nil
		}
	}
	if contentType != "" && !isJSON(contentType) {
		return fmt.Errorf("event: data: content type %s does not decode into %T; ask for a []byte",
			quote(contentType), target)
	}
	if err := json.Unmarshal(e.DataEncoded, target); err != nil {
		return fmt.Errorf("event: data: %w", err)
	}
	return nil
}

// isJSON reports whether the media type declares JSON: */json or */*+json. The
// empty string does not; what an absent content type means is up to the format.
func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	_, subtype, ok := strings.Cut(mediaType(contentType), "/")
	return ok && (equalFold(subtype, "json") || hasSuffixFold(subtype, "+json"))
}

func isText(contentType string) bool {
	return hasPrefixFold(contentType, "text/")
}

// mediaType returns the content type without its parameters.
func mediaType(contentType string) string {
	contentType, _, _ = strings.Cut(contentType, ";")
	return strings.TrimSpace(contentType)
}
