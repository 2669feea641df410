package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

const (
	// adminTimeout bounds a question to a relay.
	adminTimeout = 5 * time.Second
	// maxCosts is the most bytes of its answer that are read.
	maxCosts = 1 << 16
)

// costs tells what the relay with this address of -admin has asked its server.
func (e *examination) costs(ctx context.Context, address string) {
	costs, err := costsOf(ctx, address)
	if err != nil {
		e.tell(diagnosis{"costs", say.Problem, text(fmt.Sprintf("the relay cannot be asked: %v", err)), "give the address that the relay has for -admin"})
		return
	}
	said, most := costs.Text(time.Now())
	e.tell(diagnosis{"costs", say.OK, text(said), ""})
	if most != "" {
		e.tell(diagnosis{"prefixes", say.OK, text(most), ""})
	}
}

// costsOf asks a relay.
func costsOf(ctx context.Context, address string) (costs relay.Costs, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/costs", nil)
	if err != nil {
		return costs, errors.New("it is no address")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return costs, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return costs, fmt.Errorf("http://%s/costs: status %d", address, answer.StatusCode)
	}
	return costs, json.NewDecoder(io.LimitReader(answer.Body, maxCosts)).Decode(&costs)
}
