package relay

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// told is admit, but logs that the client has spent its share. admit may be nil.
func (h *handler) told(client netip.Addr, admit lookup.AdmitAll) lookup.AdmitAll {
	if admit == nil || h.shareSpent == nil {
		return admit
	}
	return func(n int) (admitted int, refund func(), err error) {
		admitted, refund, err = admit(n)
		if errors.Is(err, lookup.ErrShare) {
			h.shareSpent(client)
		}
		return admitted, refund, err
	}
}

// announce tells a client in the header what is left of the budget for it, if there is a budget.
func (h *handler) announce(header http.Header, client netip.Addr) {
	if h.shares == nil {
		return
	}
	if b, known := h.shares.For(client, time.Now()); known {
		header.Set(protocol.BudgetHeader, protocol.FormatBudget(b))
	}
}
