package test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	golog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A middlebox is between a client and its server: a proxy, a captive portal, or an attacker.
// While it is broken it answers in the place of the server.
type middlebox struct {
	*httptest.Server
	broken atomic.Pointer[breakage]
	asked  atomic.Int32 // requests since it broke
}

// breakage is what a middlebox does to requests.
type breakage struct {
	fault  transportFault
	search bool // only to searches; else only to other requests
}

// transportFault is one way in which an answer goes wrong, whatever the protocol.
type transportFault struct {
	outcome string // label of coredns_safebrowsing_requests_total
	answer  http.HandlerFunc
	expired bool          // the certificate has expired
	refused bool          // no server listens
	unsent  bool          // no request is sent
	endless bool          // the answer does not end before the timeout of a fetch, which is minutes
	longest time.Duration // the wait that the answer asks for; 0: none
}

// status answers with a status and a header Retry-After, unless that is "".
func status(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	}
}

func unavailableForAnHour(w http.ResponseWriter, r *http.Request) {
	status(503, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))(w, r)
}

// reply answers with status 200.
func reply(contentType, encoding string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		if encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		w.Write(body)
	}
}

const protobufForm = "application/x-protobuf"

func transportFaults() map[string]transportFault {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 64<<20))
	z.Close()
	return map[string]transportFault{
		"connection refused":  {outcome: "unreachable", refused: true, unsent: true},
		"connection reset":    {outcome: "unreachable", answer: reset},
		"expired certificate": {outcome: "unreachable", expired: true, unsent: true},
		"status 204":          {outcome: "refused", answer: status(204, "")},
		"status 301": {outcome: "refused", answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusMovedPermanently)
		}},
		"status 400":           {outcome: "refused", answer: status(400, "")},
		"status 403":           {outcome: "refused", answer: status(403, "")},
		"status 404":           {outcome: "refused", answer: status(404, "")},
		"status 429, seconds":  {outcome: "quota", answer: status(429, "7200"), longest: 2 * time.Hour},
		"status 429, absurd":   {outcome: "quota", answer: status(429, "99999999999999999999"), longest: 24 * time.Hour},
		"status 500":           {outcome: "server_error", answer: status(500, "")},
		"status 503, date":     {outcome: "server_error", answer: unavailableForAnHour, longest: time.Hour},
		"status 503, negative": {outcome: "server_error", answer: status(503, "-5")},
		"status 503, words":    {outcome: "server_error", answer: status(503, "soon")},
		"cut":                  {outcome: "unreachable", answer: cut},
		"endless":              {outcome: "malformed", answer: endless},
		"a byte a second":      {outcome: "unreachable", answer: dripping, endless: true},
		"no answer":            {outcome: "unreachable", answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, endless: true},
		"captive portal":       {outcome: "malformed", answer: reply("text/html", "", []byte("<html>Please log in</html>"))},
		"wrong type":           {outcome: "malformed", answer: reply("image/png", "", []byte("\x0a\x00"))},
		"garbage":              {outcome: "malformed", answer: reply(protobufForm, "", bytes.Repeat([]byte{0xff}, 1000))},
		"gzip bomb":            {outcome: "malformed", answer: reply(protobufForm, "gzip", bomb.Bytes())},
		"no gzip":              {outcome: "malformed", answer: reply(protobufForm, "gzip", []byte("not compressed"))},
	}
}

// reset closes the connection without the ceremony of TCP.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetLinger(0)
	}
	conn.Close()
}

func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", protobufForm)
	w.Header().Set("Content-Length", "1000")
	w.Write([]byte("\x0a\x10"))
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", protobufForm)
	chunk := bytes.Repeat([]byte{0x7a, 0}, 16<<10)
	for r.Context().Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func dripping(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", protobufForm)
	for r.Context().Err() == nil {
		w.Write([]byte{0x7a})
		http.NewResponseController(w).Flush()
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
		}
	}
}

// newMiddlebox returns a middlebox that passes everything on. With secure it speaks TLS, and ca is a file with its certificate.
func newMiddlebox(t *testing.T, next http.Handler, secure bool) (box *middlebox, ca string) {
	t.Helper()
	box = new(middlebox)
	box.Server = testkit.MortalServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := box.broken.Load()
		if b == nil || b.fault.answer == nil || b.search != strings.Contains(strings.ToLower(r.URL.Path), "hashes:") {
			next.ServeHTTP(w, r)
			return
		}
		box.asked.Add(1)
		io.Copy(io.Discard, r.Body) // only then does the context end with the connection
		b.fault.answer(w, r)
	}))
	box.Config.ErrorLog = golog.New(io.Discard, "", 0)
	if !secure {
		box.Start()
		return box, ""
	}
	file, key := testkit.Certificate(t, t.TempDir())
	good, err := tls.LoadX509KeyPair(file, key)
	testkit.Must(t, err)
	over := *good.Leaf
	over.NotBefore, over.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, &over, &over, over.PublicKey, good.PrivateKey)
	testkit.Must(t, err)
	expired := tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: good.PrivateKey}
	box.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if b := box.broken.Load(); b != nil && b.fault.expired {
			box.asked.Add(1)
			return &tls.Config{Certificates: []tls.Certificate{expired}}, nil
		}
		return &tls.Config{Certificates: []tls.Certificate{good}}, nil
	}}
	box.StartTLS()
	return box, file
}

// breaks makes the middlebox answer for its server from now on.
func (box *middlebox) breaks(f transportFault, search bool) {
	box.asked.Store(0)
	box.broken.Store(&breakage{f, search})
	if f.refused {
		box.Listener.Close()
	}
	if f.refused || f.expired { // not otherwise: an answer under way is not the fault
		box.CloseClientConnections()
	}
}
