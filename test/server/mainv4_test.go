package main

import (
	"net"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

func init() { paths["v4"] = "/v4/threatLists?alt=proto" }

func TestTheTestServerPrintsTheStanzaOfVersion4(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8099}
	want := "\tsafebrowsing {\n\t\tendpoint http://127.0.0.1:8099\n\t\tprotocol v4\n\t}\n"
	if got := (&listServer{only: protocol.DialectV4}).corefile(at); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
