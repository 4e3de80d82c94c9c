package jetstream

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/catchment-events/catchment/messaging"
)

// parseAck reads a publish acknowledgement: stored, or an error that may be
// final.
func parseAck(m *nats.Msg) (stored, final bool, err error) {
	if bytes.HasPrefix(m.Data, []byte(`{"stream":`)) {
		return true, false, nil
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return false, false, natsjs.ErrNoStreamResponse
	}
	var ack struct {
		Error  *natsjs.APIError `json:"error"`
		Stream string           `json:"stream"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return false, false, fmt.Errorf("%w: %w", natsjs.ErrInvalidJSAck, err)
	}
	if ack.Error == nil {
		return ack.Stream != "", false, natsjs.ErrInvalidJSAck
	}
	switch code := ack.Error.ErrorCode; {
	case code == codeStoreFailed && isLimit(ack.Error.Description):
		return false, true, fmt.Errorf("%w: %w", messaging.ErrFull, ack.Error)
	case code == codeMessageTooLarge, code == codeHeaderTooLarge:
		return false, true, fmt.Errorf("%w: %w", messaging.ErrTooLarge, ack.Error)
	case code == codeDuplicateInProcess, ack.Error.Code == 503, ack.Error.Code == 500:
		return false, false, ack.Error
	}
	return false, true, ack.Error
}

// The server's error codes that mean something to a publisher.
const (
	codeMessageTooLarge    natsjs.ErrorCode = 10054
	codeStoreFailed        natsjs.ErrorCode = 10077
	codeHeaderTooLarge     natsjs.ErrorCode = 10097
	codeDuplicateInProcess natsjs.ErrorCode = 10158

	codeWrongSequence          natsjs.ErrorCode = 10071
	codeWrongSequenceInCluster natsjs.ErrorCode = 10164
)

// isLimit tells the bound of a stream from other reasons of a failed store.
func isLimit(description string) bool {
	switch description {
	case "maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded":
		return true
	}
	return false
}
