// Package control is the door: what is said about a running server is said by it, to who may open a
// Unix socket, as HTTP and JSON.
//
//	block.Process ◀── Server ◀── Door: one socket a folder, counted, over reloads
//	                               ▲ HTTP over a Unix socket: the owner and the group
//	Command (words of the programs) ──▶ Client ──▶ Find: which socket
//
// The Server knows no key. Calls that change something are logged with who asked. docs/command-line.md has
// all calls.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

var log = say.NewLog(clog.NewWithPlugin(say.Plugin))

// Server is what is asked over a door. It is safe for concurrent use; a block.Process is one.
type Server interface {
	Report() status.Report
	WhyName(ctx context.Context, name string, confirm bool) (status.Why, error)
	Pause(ctx context.Context, zone string, length time.Duration, keep bool) ([]block.Pause, error)
	Change(ctx context.Context, c block.Change) (block.Changed, error)
	Listings(ctx context.Context, q block.Question) (block.Listings, error)
	Confirm(ctx context.Context, q block.Question) (block.Confirmed, error)
}

// The bounds of what a caller may take.
const (
	maxConnections = 64 // of all callers at once; others are closed
	maxBody        = 4 << 10
	maxQuestion    = 128 << 10 // the body of a question about prefixes and hosts
	maxHeader      = 8 << 10
	headerTimeout  = 5 * time.Second
	callTimeout    = 20 * time.Second // a confirmation takes 10 seconds at most
)

// order is the body of a call that changes something.
type order struct {
	Name   string `json:"name,omitempty"`
	For    string `json:"for,omitempty"`   // a duration such as 30m or 7d
	Until  string `json:"until,omitempty"` // instead of For: a time by RFC 3339
	Zone   string `json:"zone,omitempty"`  // of a pause; "": all
	Keep   bool   `json:"keep,omitempty"`  // a pause continues after a restart
	Remove bool   `json:"remove,omitempty"`
}

// failure is the body of an answer that is not 200.
type failure struct {
	Error string `json:"error"`
}

// misuse is an error of the caller.
type misuse struct{ error }

// handler serves the calls.
func handler(s Server) http.Handler {
	mux := http.NewServeMux()
	get := func(path string, call func(r *http.Request) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := call(r)
			reply(w, v, err)
		})
	}
	post := func(path string, call func(ctx context.Context, o order) (any, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var o order
			err := readBody(w, r, maxBody, &o)
			var v any
			if err == nil {
				v, err = call(r.Context(), o)
				logCall(r.Context(), path, o, err)
			}
			reply(w, v, err)
		})
	}
	ask := func(path string, call func(ctx context.Context, q block.Question) (any, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var q block.Question
			err := readBody(w, r, maxQuestion, &q)
			var v any
			if err == nil {
				if v, err = call(r.Context(), q); err != nil {
					err = misuse{err}
				}
			}
			reply(w, v, err)
		})
	}
	get("/status", func(*http.Request) (any, error) { return s.Report().Shown(), nil })
	get("/lists", func(*http.Request) (any, error) {
		r := s.Report()
		return Lists{r.At, r.Services, r.Blocks}, nil
	})
	get("/blocked", func(*http.Request) (any, error) { return s.Report().Names, nil })
	get("/why", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		confirm, _ := strconv.ParseBool(q.Get("confirm"))
		why, err := s.WhyName(r.Context(), q.Get("name"), confirm)
		if err != nil {
			err = misuse{err}
		}
		return why, err
	})
	post("/pause", func(ctx context.Context, o order) (any, error) { return pause(ctx, s, o, true) })
	post("/resume", func(ctx context.Context, o order) (any, error) { return pause(ctx, s, o, false) })
	post("/allow", func(ctx context.Context, o order) (any, error) {
		return change(ctx, s, o, block.Change{Allow: true, Remove: o.Remove})
	})
	post("/block", func(ctx context.Context, o order) (any, error) {
		return change(ctx, s, o, block.Change{Remove: o.Remove})
	})
	post("/unblock", func(ctx context.Context, o order) (any, error) { return change(ctx, s, o, block.Change{Remove: true}) })
	ask("/listed", func(ctx context.Context, q block.Question) (any, error) { return s.Listings(ctx, q) })
	ask("/confirm", func(ctx context.Context, q block.Question) (any, error) { return s.Confirm(ctx, q) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Lists are the lists of a report.
type Lists struct {
	At       time.Time        `json:"at"`
	Services []status.Service `json:"services"`
	Own      []status.Block   `json:"blocks"`
}

// readBody reads the body of a call, which may be empty and has most bytes at most, into v.
func readBody(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return misuse{fmt.Errorf("the body is not as expected: %w", err)}
	}
	return nil
}

func pause(ctx context.Context, s Server, o order, begin bool) (any, error) {
	if o.Name != "" || o.Until != "" || o.Remove {
		return nil, misuse{errors.New("a pause has for, zone and keep only: allow lets one name pass")}
	}
	length, zone := time.Duration(0), o.Zone
	if zone == "" {
		zone = block.AllBlocks
	}
	if begin {
		var err error
		if length, err = say.Duration(o.For, block.MaxPause); err != nil {
			return nil, misuse{err}
		}
	}
	all, err := s.Pause(ctx, zone, length, o.Keep)
	return append([]block.Pause{}, all...), err
}

func change(ctx context.Context, s Server, o order, c block.Change) (any, error) {
	if o.Zone != "" || o.Keep {
		return nil, misuse{errors.New("only a pause has zone and keep: an entry is for all server blocks")}
	}
	var err error
	if c.Host, err = block.EntryHost(o.Name); err != nil {
		return nil, misuse{err}
	}
	timed := o.For != "" || o.Until != ""
	switch {
	case timed && (!c.Allow || c.Remove):
		err = errors.New("only an entry that allows has an end")
	case o.For != "" && o.Until != "":
		err = errors.New("for and until are both given: keep one of the two")
	case o.For != "":
		c.Until, err = block.EndOf(o.For, "", time.Now())
	case o.Until != "":
		c.Until, err = time.Parse(time.RFC3339, o.Until)
	}
	if err == nil && timed && !c.Until.After(time.Now()) {
		err = fmt.Errorf("until: %s is in the past", o.Until)
	}
	if err != nil {
		return nil, misuse{err}
	}
	return s.Change(ctx, c)
}

// reply writes an answer.
func reply(w http.ResponseWriter, v any, err error) {
	code := http.StatusOK
	if err != nil {
		code, v = http.StatusInternalServerError, failure{err.Error()}
		if _, ok := errors.AsType[misuse](err); ok {
			code = http.StatusBadRequest
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	e := json.NewEncoder(say.MaskedWriter{W: w})
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the caller has gone
}

// logCall logs a call that changes something.
func logCall(ctx context.Context, path string, o order, err error) {
	text, _ := json.Marshal(o) // quotes control characters
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	if err != nil {
		log.Warningf("%s asked over the control socket for %s %s: %v", peerOf(conn), path[1:], text, err)
		return
	}
	log.Infof("%s asked over the control socket for %s %s", peerOf(conn), path[1:], text)
}

// connKey is where the context of a call has its connection.
type connKey struct{}

// serve serves calls on a listener until Close.
func serve(l net.Listener, s Server) *http.Server {
	listener := &few{Listener: l}
	server := &http.Server{
		Handler:           handler(s),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout,
		WriteTimeout:      callTimeout + time.Second,
		IdleTimeout:       headerTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				listener.open.Add(-1)
			}
		},
	}
	go server.Serve(listener)
	return server
}

// few is a listener with at most maxConnections at once, which closes others.
type few struct {
	net.Listener
	open atomic.Int32
}

// Accept implements net.Listener.
func (f *few) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if f.open.Add(1) <= maxConnections {
			return conn, nil
		}
		f.open.Add(-1)
		conn.Close()
	}
}

// tellEvery is how often the service manager is told a headline that has changed.
const tellEvery = 5 * time.Second

// TellManager tells the service manager, if there is one, that this process serves, and from then on the headline of
// its status. The ports listen by now, and server blocks have started: they have the lists of their folder, or none is
// there. What the server of lists does, and when, is no part of a start. It returns at once.
func TellManager() {
	if say.Managed() {
		go tell(context.Background(), block.ThisProcess().Report, tellEvery)
	}
}

// TellManagerEnd tells the service manager, if there is one, that this process ends.
func TellManagerEnd() { _ = say.Notify("STOPPING=1") } // it has asked for that, or sees it soon

// tell tells the service manager what a report says, until ctx ends. What could not be told is told
// again: a service that is not ready in time would be ended.
func tell(ctx context.Context, report func() status.Report, every time.Duration) {
	trouble := say.Notify("READY=1") // before a report: it may wait for a disk
	if trouble != nil {
		log.Warningf("The service manager cannot be told that CoreDNS serves: %v. It is told again every %s", trouble, every)
	}
	said := ""
	look := func() {
		if text := report().Headline; trouble != nil || text != said {
			if trouble = say.Notify("READY=1", "STATUS="+text); trouble == nil {
				said = text
			}
		}
	}
	look()
	files.Every(ctx, every, look)
}
