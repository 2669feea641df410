package protocol

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// counting is a server that answers the first request of each connection, with status 503, and
// refuses each later one after it has read it.
type counting struct {
	requests, connections atomic.Int32
}

// serve1 speaks HTTP/1.1. refuse ends the connection.
func (s *counting) serve1(refuse func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		s.connections.Add(1)
		defer conn.Close()
		from := bufio.NewReader(conn)
		for n := 0; ; n++ {
			r, err := http.ReadRequest(from)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			s.requests.Add(1)
			if n > 0 {
				refuse(conn)
				return
			}
			io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
		}
	}
}

// serve2 speaks HTTP/2. refuse answers a stream that is not the first, or the first, too.
func (s *counting) serve2(first bool, refuse func(*http2.Framer, uint32, net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		s.connections.Add(1)
		defer conn.Close()
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		var block bytes.Buffer
		hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "503"})
		f := http2.NewFramer(conn, conn)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch id := frame.Header().StreamID; frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				s.requests.Add(1)
				if id > 1 || first {
					refuse(f, id, conn)
					continue
				}
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
			}
		}
	}
}

// secured is tcpServer with TLS, unless the protocol for it is "". It returns its certificate, too.
func secured(t *testing.T, protocol string, handle func(net.Conn)) (endpoint, ca string) {
	t.Helper()
	if protocol == "" {
		return "http://" + tcpServer(t, handle), ""
	}
	certificate, ca := testCertificate(t)
	cfg := &tls.Config{Certificates: certificate, NextProtos: []string{protocol}}
	return "https://" + tcpServer(t, func(conn net.Conn) {
		secure := tls.Server(conn, cfg)
		if secure.Handshake() == nil {
			handle(secure)
		}
		conn.Close()
	}), ca
}

// testCertificate is one for example.com, and who vouches for it.
func testCertificate(t *testing.T) (certificate []tls.Certificate, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return server.TLS.Certificates, pemOf(server.Certificate().Raw)
}

// reset ends a connection so that the other side sees it as broken.
func reset(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

func resetStream(code http2.ErrCode) func(*http2.Framer, uint32, net.Conn) {
	return func(f *http2.Framer, id uint32, _ net.Conn) { f.WriteRSTStream(id, code) }
}

// refusals are ways to refuse a request after it was read.
var refusals = map[string]struct {
	protocol string // with TLS; "": HTTP/1.1 without
	one      func(net.Conn)
	two      func(*http2.Framer, uint32, net.Conn)
}{
	"HTTP/1.1, reset":         {"", reset, nil},
	"HTTP/1.1, closed":        {"", func(net.Conn) {}, nil},
	"HTTP/1.1 and TLS, reset": {"http/1.1", reset, nil},
	"HTTP/2, reset":           {"h2", nil, func(_ *http2.Framer, _ uint32, conn net.Conn) { reset(conn) }},
	"HTTP/2, refused stream":  {"h2", nil, resetStream(http2.ErrCodeRefusedStream)},
	"HTTP/2, protocol error":  {"h2", nil, resetStream(http2.ErrCodeProtocol)},
	"HTTP/2, going away":      {"h2", nil, func(f *http2.Framer, id uint32, _ net.Conn) { f.WriteGoAway(id-2, http2.ErrCodeNo, nil) }},
}

// speaking returns a client of a dialect, about se-4b and other lists.
func speaking(t *testing.T, d *Dialect, cfg Config, others ...string) Client {
	t.Helper()
	cfg.UserAgent = "test/1"
	c, err := d.NewClient(cfg, append(others, "se-4b"), func() [][]byte { return nil })
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// wantNoAnswer holds that a request was sent, and got no answer.
func wantNoAnswer(t *testing.T, err error) {
	t.Helper()
	if err == nil || statusOf(err) != 0 || isNotSent(err) || errors.Is(err, context.Canceled) {
		t.Errorf("the request that got no answer: %v", err)
	}
}

// A search is one request on the wire: one that a server has read and not answered counts as failed. Between two
// fetches are minutes: each has a connection of its own, so that it fails for no old one.
func TestASearchIsOneRequestOnTheWire(t *testing.T) {
	for name, refusal := range refusals {
		for _, d := range Dialects() {
			t.Run(name+", "+d.Name, func(t *testing.T) {
				t.Parallel()
				var s counting
				handle := s.serve1(refusal.one)
				if refusal.two != nil {
					handle = s.serve2(false, refusal.two)
				}
				endpoint, ca := secured(t, refusal.protocol, handle)
				c := speaking(t, d, Config{Endpoint: endpoint, CA: ca})
				for _, ask := range []func(context.Context, Client) error{searchOnce, fetchOnce, fetchOnce} {
					testkit.Equal(t, "status", statusOf(ask(t.Context(), c)), 503)
				}
				testkit.Equal(t, "requests and connections of three", [2]int32{s.requests.Load(), s.connections.Load()}, [2]int32{3, 3})
				asked, err := int32(4), searchOnce(t.Context(), c)
				for ; statusOf(err) == 503 && asked < 10; asked++ { // net/http keeps no connection whose writer it has not heard for 50 ms
					err = searchOnce(t.Context(), c)
				}
				wantNoAnswer(t, err)
				testkit.Equal(t, "requests of all searches and fetches", s.requests.Load(), asked)
			})
		}
	}
}

// A search does not pass from one kept connection to the next.
func TestASearchIsOneRequestAlthoughThereAreOtherConnections(t *testing.T) {
	const kept = 4 // see Transport
	var together sync.WaitGroup
	together.Add(kept)
	var requests atomic.Int32
	address := tcpServer(t, func(conn net.Conn) {
		defer reset(conn)
		from := bufio.NewReader(conn)
		for range 2 {
			if _, err := http.ReadRequest(from); err != nil {
				return
			}
			if requests.Add(1) > kept {
				return
			}
			together.Done()
			together.Wait()
			io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := speaking(t, DialectV5, Config{Endpoint: "http://" + address})
	var wg sync.WaitGroup
	for range kept {
		wg.Go(func() { searchOnce(t.Context(), c) })
	}
	wg.Wait()
	for n := range int32(kept) {
		wantNoAnswer(t, searchOnce(t.Context(), c))
		testkit.Equal(t, "requests", requests.Load(), kept+n+1)
	}
}

// A server of HTTP/2 may refuse a request on a new connection, too.
func TestAFetchIsOneRequestOnTheWire(t *testing.T) {
	for _, code := range []http2.ErrCode{http2.ErrCodeRefusedStream, http2.ErrCodeProtocol} {
		for _, d := range Dialects() {
			t.Run(code.String()+", "+d.Name, func(t *testing.T) {
				t.Parallel()
				var s counting
				endpoint, ca := secured(t, "h2", s.serve2(true, resetStream(code)))
				c := speaking(t, d, Config{Endpoint: endpoint, CA: ca})
				wantNoAnswer(t, fetchOnce(t.Context(), c))
				testkit.Equal(t, "requests of a fetch", s.requests.Load(), 1)
			})
		}
	}
}

// What ends the request ends it with its own words.
func TestASearchThatIsEndedSaysSo(t *testing.T) {
	asked := make(chan struct{})
	address := tcpServer(t, func(conn net.Conn) {
		defer conn.Close()
		http.ReadRequest(bufio.NewReader(conn))
		close(asked)
		<-t.Context().Done() // the end of the connection would be another reason
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	c := speaking(t, DialectV5, Config{Endpoint: "http://" + address})
	testkit.Is(t, "the search", searchOnce(ctx, c), context.Canceled)
}

// silent is the end of a connection that may die without a word, as when a line is
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

// inBubble runs a test in simulated time with a client of a server for example.com that speaks a
// protocol, and with the ends of its connections on the side of the server.
func inBubble(t *testing.T, protocol string, handler http.Handler, run func(t *testing.T, c Client, accepted *[]*silent)) {
	certificate, ca := testCertificate(t)
	synctest.Test(t, func(t *testing.T) {
		listener := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{
			Handler: handler, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
			TLSConfig: &tls.Config{Certificates: certificate, NextProtos: []string{protocol}},
		}
		server.Protocols.SetHTTP1(protocol != "h2")
		server.Protocols.SetHTTP2(protocol == "h2")
		var wg sync.WaitGroup
		wg.Go(func() { server.ServeTLS(listener, "", "") })
		secured, err := TLS(ca, CertFiles{})
		testkit.Must(t, err)
		tr := Transport(nil, secured)
		tr.Proxy = nil
		var accepted []*silent
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			dead := new(atomic.Bool)
			accepted = append(accepted, &silent{theirs, dead})
			listener.accepted <- accepted[len(accepted)-1]
			return &silent{ours, dead}, nil
		}
		c := speaking(t, DialectV5, Config{Endpoint: "https://example.com", Transport: tr})
		run(t, c, &accepted)
		for _, conn := range accepted {
			conn.Close()
		}
		c.Close()
		server.Close()
		wg.Wait()
		synctest.Wait()
	})
}

// A kept connection that the server has closed before a search began costs no search.
func TestASearchDoesNotFailForAConnectionThatWasClosedBefore(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		var asked atomic.Int32
		refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.WriteHeader(503) })
		inBubble(t, protocol, refuse, func(t *testing.T, c Client, accepted *[]*silent) {
			for i := range 3 {
				testkit.Equal(t, i, statusOf(searchOnce(t.Context(), c)), 503)
				synctest.Wait()
				(*accepted)[i].Close()
				synctest.Wait()
			}
			testkit.Equal(t, "requests of three searches", asked.Load(), 3)
		})
	}
}

// A connection of HTTP/2 that is dead is replaced before a third search, of ten
// seconds, has timed out: three in a row would pause all confirmations.
func TestADeadConnectionIsReplacedInSeconds(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", binaryForm)
		w.Write(unhex(t, wireNothingFound))
	})
	inBubble(t, "h2", answer, func(t *testing.T, c Client, accepted *[]*silent) {
		testkit.Must(t, searchOnce(t.Context(), c))
		(*accepted)[0].dead.Store(true)
		failed, begun := 0, time.Now()
		for again := true; again && failed < 5; {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if again = searchOnce(ctx, c) != nil; again {
				failed++
			}
			cancel()
		}
		testkit.Between(t, "searches that failed", failed, 0, 2)
		testkit.Between(t, "time", time.Since(begun), 0, 20*time.Second)
		testkit.Equal(t, "connections", len(*accepted), 2)
	})
}
