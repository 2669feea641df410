package protocol

import "sync/atomic"

// Provider is the service of Google's that says what a server says. The zero Provider is any other
// server, whose verdicts must not be said to be Google's (Safe Browsing terms).
type Provider struct {
	Service  string // what Google calls it
	Advisory string // URL of its words about warnings, to be given with each one
}

// hosts are the names of Google's servers, each with the endpoint of its service. Those with mtls
// are for clients with a certificate (Google's AIP-4114).
var hosts = map[string]string{
	hostOf(DefaultEndpoint):            DefaultEndpoint,
	"safebrowsing.mtls.googleapis.com": DefaultEndpoint,
	hostOf(WebRiskEndpoint):            WebRiskEndpoint,
	"webrisk.mtls.googleapis.com":      WebRiskEndpoint,
}

// ProviderOf returns the provider whose advisory has this URL, and the zero Provider for any other
// text. So no words of a server, or of a file, are ever shown.
func ProviderOf(advisory string) Provider {
	for _, d := range dialects {
		if d.Advisory == advisory {
			return d.provider()
		}
	}
	return Provider{}
}

// provider returns Google's service that the dialect is for.
func (d *Dialect) provider() Provider { return Provider{d.Service, d.Advisory} }

// ProviderAt returns Google's service at an endpoint that this dialect is spoken with, and the
// zero Provider if Google does not run the server. "" is Google's.
func (d *Dialect) ProviderAt(endpoint string) Provider {
	if !IsGoogle(endpoint) {
		return Provider{}
	}
	return d.provider()
}

// heard is the advisory that a server told of last. The zero heard has not heard from it. It is
// safe for concurrent use.
type heard struct{ advisory atomic.Pointer[string] }

// hear notes the AdvisoryHeader of a good answer. One without it comes from a server that
// is not Google's, or from a relay that has not asked its server yet: its next answer will tell.
func (h *heard) hear(value string) {
	advisory := ProviderOf(value).Advisory
	if last := h.advisory.Load(); last == nil || *last != advisory {
		h.advisory.Store(&advisory)
	}
}

// Advisory implements Client.
func (h *heard) Advisory() (url string, known bool) {
	if last := h.advisory.Load(); last != nil {
		return *last, true
	}
	return "", false
}
