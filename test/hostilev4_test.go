package test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// hostileList is an answer about se-4b in version 4, of 700 kB on the wire, with
// 100,000 sets of one entry: to merge them all takes minutes.
func hostileList(t *testing.T) []byte {
	t.Helper()
	const sets = 100_000
	update := []byte{0x08, 2, 0x10, 1, 0x18, 6, 0x20, 2} // social engineering, URL, any platform, full
	for i := range uint32(sets) {
		update = append(update, 0x2a, 12, 8, 1, 0x12, 8, 8, 4, 0x12, 4) // raw additions
		update = binary.BigEndian.AppendUint32(update, i)
	}
	update = append(update, 0x3a, 1, 'v') // the new state
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	z.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), update))
	testkit.Must(t, z.Close())
	return body.Bytes()
}

// A list that takes long to decode must not keep a reload, or readiness, waiting.
func TestReloadAndReadyDoNotWaitForAHostileList(t *testing.T) {
	testkit.Long(t)
	body, asked := hostileList(t), make(chan bool, 100)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/x-protobuf")
		rw.Header().Set("Content-Encoding", "gzip")
		rw.Write(body)
		asked <- true
	}))
	defer server.Close()
	w := newWorld(t)
	w.endpoint, w.protocol = server.URL, protocol.DialectV4
	w.start(w.corefile("lists se-4b mw-4b"))
	<-asked
	time.Sleep(time.Second) // the answer is being decoded now
	begun := time.Now()
	testkit.Must(t, w.reload(w.corefile("lists se-4b mw-4b", "cache 77")))
	testkit.Until(w.t, "readiness", w.ready)
	w.wantPassed("clean.example.com.", dns.TypeA)
	if took := time.Since(begun); took > files.WaitLimit/2 {
		t.Errorf("Expected a reload and readiness at once, took %s", took)
	}
}
