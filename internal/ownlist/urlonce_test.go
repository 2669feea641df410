package ownlist

import (
	"net"
	"net/http"
	"testing"
)

// Downloads are hours apart: each has a connection of its own, so that it fails for no old one and
// is one request.
func TestADownloadHasAConnectionOfItsOwn(t *testing.T) {
	f := newFixture(t, nil)
	requests := 0
	connections := make(map[string]bool)
	answer := func(w http.ResponseWriter, r *http.Request) {
		requests++
		if connections[r.RemoteAddr] {
			conn, _, err := http.NewResponseController(w).Hijack()
			must(t, err)
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
			return
		}
		connections[r.RemoteAddr] = true
		send(names(requests))(w, r)
	}
	for want := range 3 {
		f.fetch(answer)
		if requests != want+1 || f.inForce() != want+1 {
			t.Errorf("download %d: %d requests on %d connections, %d names", want+1, requests, len(connections), f.inForce())
		}
	}
}
