package protocol

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silent is the end of a connection that dies without a word, as when a line is
// dialled again: what is written vanishes, and nothing comes any more.
type silent struct {
	net.Conn
	dead *atomic.Bool
}

func (s *silent) Write(p []byte) (int, error) {
	if s.dead.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

// pipes listens for connections of its own process.
type pipes struct {
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// A connection of HTTP/2 that is dead is replaced before a third search, of ten
// seconds, has timed out: three in a row would pause all confirmations.
func TestADeadConnectionIsReplacedInSeconds(t *testing.T) {
	certificate, roots := testCertificate(t)
	synctest.Test(t, func(t *testing.T) {
		listener := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{
			Handler:   serving(binaryForm, unhex(t, wireNothingFound)),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}},
		}
		go server.ServeTLS(listener, "", "")
		var dialled []*silent
		tr := Transport(nil, new(tls.Config))
		tr.Proxy = nil
		tr.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "example.com"}
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			dead := new(atomic.Bool)
			dialled = append(dialled, &silent{ours, dead})
			listener.accepted <- &silent{theirs, dead}
			return dialled[len(dialled)-1], nil
		}
		c, err := NewV5(Config{Endpoint: "https://example.com", Key: testKey, UserAgent: "test/1", Transport: tr})
		if err != nil {
			t.Fatal(err)
		}
		if err := searchError(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		dialled[0].dead.Store(true)
		failed, begun := 0, time.Now()
		for again := true; again && failed < 5; {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if again = searchError(ctx, c) != nil; again {
				failed++
			}
			cancel()
		}
		if took := time.Since(begun); failed > 2 || took > 20*time.Second || len(dialled) != 2 {
			t.Errorf("%d searches failed in %s, %d connections were made, want at most 2 in 20 s and 2 connections", failed, took, len(dialled))
		}
		for _, conn := range dialled {
			conn.Close()
		}
		c.Close()
		server.Close()
		synctest.Wait()
	})
}

// testCertificate is one for example.com, and who vouches for it.
func testCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.TLS.Certificates[0], roots
}
