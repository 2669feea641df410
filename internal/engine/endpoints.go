package engine

import (
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// endpointChanged logs and measures when one of several endpoints is left and when it answers again.
func (r *reporter) endpointChanged(e protocol.EndpointEvent) {
	r.mu.Lock()
	r.left[e.Endpoint] = e.Err != nil
	r.mu.Unlock()
	r.measureEndpoints()
	if e.Err == nil {
		log.Infof("%s answers again", e.Endpoint)
		return
	}
	log.Warningf("%s fails: %v. %s is asked in its place; %s is tried again, not before %s", e.Endpoint, e.Err, e.Instead, e.Endpoint, say.Time(e.Until))
}

// measureEndpoints sets the gauge of each endpoint, if there are several: of a single one
// the outcomes of requests tell.
func (r *reporter) measureEndpoints() {
	endpoints := r.settings.Endpoints()
	if len(endpoints) < 2 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, url := range endpoints {
		up := 1.0
		if r.left[url] {
			up = 0
		}
		endpointUp.WithLabelValues(append(labelsOf(r.settings), url)...).Set(up)
	}
}
