package main

import (
	"context"

	"github.com/catchment-events/catchment/provider/ledger"
)

func openLedger(_ context.Context, s site) (*link, error) {
	b, err := ledger.Open(s.dir, nil)
	if err != nil {
		return nil, err
	}
	return brokerLink(b), nil
}
