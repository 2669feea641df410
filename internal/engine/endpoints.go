package engine

import (
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// endpointChanged logs and notes when one of several endpoints is left and when it answers again.
func (r *reporter) endpointChanged(e protocol.EndpointEvent) {
	r.mu.Lock()
	r.left[e.Endpoint] = e.Err != nil
	r.mu.Unlock()
	if e.Err == nil {
		log.Infof("%s answers again", e.Endpoint)
		return
	}
	log.Warningf("%s fails: %v. %s is asked in its place; %s is tried again, not before %s", e.Endpoint, e.Err, e.Instead, e.Endpoint, say.Time(e.Until))
}
