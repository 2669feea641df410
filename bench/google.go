package main

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// google is the Safe Browsing server of the bench. It has several catalogs, each
// below a path of its own, hands out a full update whenever it is asked, and
// finds no prefix to be a threat.
type google struct {
	http     *http.Server
	url      string
	empty    []byte // the answer to every search
	searches atomic.Int64

	mu       sync.Mutex
	catalogs map[string]*catalog // by path
}

// catalog is lists that are handed out, one generation after the other.
type catalog struct {
	generations []generation
	waits       []time.Duration // minimum waits of the first answers; the last one is for all that follow
	fetches     int             // how often it was asked for lists
	hangs       bool            // searches are never answered
	untaken     int             // how often the client turned out not to hold what it had been sent last
	news        chan time.Time  // gets the time of each, if there is room; may be nil
}

// searchLife is how long a client may keep the answer that a prefix is harmless.
const searchLife = 300 * time.Second

func newGoogle() (*google, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &google{url: "http://" + listener.Addr().String(), catalogs: make(map[string]*catalog)}
	g.empty, err = proto.Marshal(&sbv5.SearchHashesResponse{CacheDuration: durationpb.New(searchLife)})
	if err != nil {
		return nil, err
	}
	g.http = &http.Server{Handler: g}
	go g.http.Serve(listener) // ends with Close
	return g, nil
}

func (g *google) close() { g.http.Close() }

// offer puts a catalog below path and returns its endpoint.
func (g *google) offer(path string, c *catalog) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.catalogs[path] = c
	return g.url + "/" + path
}

// ServeHTTP implements http.Handler.
func (g *google) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/x-protobuf")
	switch method {
	case "v5/hashes:search":
		g.searches.Add(1)
		if g.hangs(path) {
			<-r.Context().Done() // until the client has given up
			return
		}
		w.Write(g.empty)
	case "v5/hashLists:batchGet":
		answer, err := g.lists(path, r.URL.Query()["names"], r.URL.Query()["version"])
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		size := 0
		for _, part := range answer {
			size += len(part)
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for _, part := range answer {
			w.Write(part)
		}
	default:
		http.NotFound(w, r)
	}
}

// hangs reports whether searches below a path are never answered.
func (g *google) hangs(path string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.catalogs[path]
	return c != nil && c.hangs
}

// lists returns the next generation of the named lists, in parts: what is large
// is not copied while a load is being sent.
func (g *google) lists(path string, names, versions []string) (answer [][]byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.catalogs[path]
	if c == nil {
		return nil, fmt.Errorf("no catalog %q", path)
	}
	wait, err := proto.Marshal(&sbv5.HashList{MinimumWaitDuration: durationpb.New(c.waits[min(c.fetches, len(c.waits)-1)])})
	if err != nil {
		return nil, err
	}
	if c.fetches > 0 && !holds(versions, c.generations[(c.fetches-1)%len(c.generations)], names) {
		c.untaken++
	}
	lists := c.generations[c.fetches%len(c.generations)].lists
	for _, name := range names {
		list := lists[name]
		if list == nil {
			return nil, fmt.Errorf("no list %q", name)
		}
		head := protowire.AppendTag(nil, 1, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(len(list)+len(wait)))
		answer = append(answer, head, list, wait) // the fields of a message may come in parts
	}
	c.fetches++
	select {
	case c.news <- time.Now():
	default:
	}
	return answer, nil
}

// holds reports whether a client that tells of these versions holds the named
// lists of a generation.
func holds(versions []string, g generation, names []string) bool {
	want := base64.URLEncoding.EncodeToString(g.version)
	return len(versions) == len(names) && !slices.ContainsFunc(versions, func(v string) bool { return v != want })
}

// took returns an error if a client of the catalog did not take an update.
func (g *google) took(c *catalog) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.untaken > 0 {
		return fmt.Errorf("%d of %d updates were not taken", c.untaken, c.fetches)
	}
	return nil
}
