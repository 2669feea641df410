// Package client is a Safe Browsing client, version 5: packages lookup and updater with Google's server, or a relay,
// at the other end. It keeps the server's rules: random first contact, minimum wait durations, back-off for list
// updates and for searches, across restarts if it has a folder.
//
//	c, err := client.Open(client.Config{Program: "mailscan/1.2", Key: key, Folder: "/var/lib/mailscan"})
//	defer c.Close()
//	go c.Run(ctx)
//	decision, err := c.Check(ctx, "http://example.com/login")
//
// A URL stays on the machine: only the first four bytes of a hash leave it, and only if a list has them. Safe Browsing is
// for non-commercial use, see https://developers.google.com/safe-browsing/terms.
//
// The module is at v0: Config, Client and what they use of lookup and updater may change with a new minor version, and
// CHANGELOG.md says how. It does not speak version 4, which Google ends on 31 March 2027.
package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// ErrNotReady is why a URL is Unsure while a list is not in force: it has never been fetched.
var ErrNotReady = errors.New("not all lists are there yet")

// Config says how a Client works.
type Config struct {
	Program string // required: "name/version" on one line, sent as the User-Agent
	Key     string // of the API; required unless Endpoint is a relay that wants none
	// Folder keeps the lists, and when the server may be asked again. Processes with the same folder share both. "":
	// they are in memory only, and each start fetches all lists.
	Folder   string
	Endpoint string   // URL of a relay, with a Key by https unless it is in one's own network; "": Google's server
	Lists    []string // names of threat lists; none: se-4b, mw-4b and uws-4b. Only their threats count
	// Report is told what happens, from several goroutines: a list has been updated, a disk cannot be used. Nil: nobody
	// is told.
	Report func(updater.Event)

	transport http.RoundTripper // of tests; nil: the network
}

// Client checks URLs. It is safe for concurrent use, but Run is for one goroutine.
type Client struct {
	lists    []string
	database lookup.Database
	schedule *updater.Schedule
	updater  *updater.Updater
	checker  *lookup.Checker
	server   protocol.Client
}

// Open returns a Client with the lists of the folder in force. It asks nobody: that is for Run and Check. The error
// says what is wrong with cfg, or with the folder.
func Open(cfg Config) (*Client, error) {
	if len(cfg.Lists) == 0 {
		cfg.Lists = []string{"se-4b", "mw-4b", "uws-4b"}
	}
	if cfg.Report == nil {
		cfg.Report = func(updater.Event) {}
	}
	if cfg.Program == "" || strings.ContainsFunc(cfg.Program, unicode.IsControl) {
		return nil, errors.New(`the field Program must be "name/version", on one line: it goes to the server as the User-Agent`)
	}
	if cfg.Endpoint != "" {
		cfg.Endpoint = strings.TrimSuffix(cfg.Endpoint, "/") // "": it was a slash alone, and Google's server is not meant
		if err := protocol.CheckEndpoints([]string{cfg.Endpoint}); err != nil {
			return nil, err
		}
	}
	if !protocol.DialectV5.Serves(cfg.Endpoint) {
		return nil, errors.New(cfg.Endpoint + " does not speak version 5")
	}
	for _, name := range cfg.Lists {
		if err := protocol.DialectV5.CheckList(name, protocol.IsGoogle(cfg.Endpoint)); err != nil {
			return nil, err
		}
	}
	if cfg.Key == "" && protocol.IsGoogle(cfg.Endpoint) {
		return nil, errors.New("no API key: Google's server wants one; make it in the Google Cloud console")
	}
	if cfg.Key != "" && lookup.InClearText(cfg.Endpoint) {
		return nil, errors.New("the endpoint has http, which would send the API key in clear text: use https")
	}
	server, err := protocol.NewV5(protocol.Config{Endpoint: cfg.Endpoint, Key: cfg.Key, UserAgent: cfg.Program, Transport: cfg.transport})
	if err != nil {
		return nil, err
	}
	c := &Client{lists: cfg.Lists, server: server}
	var store *updater.Store
	if cfg.Folder != "" {
		address := cmp.Or(cfg.Endpoint, protocol.DefaultEndpoint)
		if store, err = updater.OpenStore(cfg.Folder, protocol.DialectV5.Origin(address, updater.Asker(address, cfg.Key))); err != nil {
			return nil, err
		}
	}
	if c.schedule, err = updater.NewSchedule(store); err != nil { // damaged: it waits for half an hour
		cfg.Report(updater.Event{Kind: updater.LoadFailed, Err: err})
	}
	c.updater, err = updater.New(updater.Config{
		Source: server, Database: &c.database, Schedule: c.schedule, Store: store, Lists: cfg.Lists, Report: cfg.Report,
	})
	if err != nil {
		return nil, err
	}
	paced := updater.Pace(server, c.schedule, protocol.DialectV5.SearchRules, cfg.Report)
	if c.checker, err = lookup.NewChecker(lookup.Config{Database: &c.database, Searcher: paced, Threats: protocol.ThreatsOf(cfg.Lists)}); err != nil {
		return nil, err
	}
	c.updater.Load()
	return c, nil
}

// Run keeps the lists fresh until ctx ends, and returns its error. The first request follows within a minute. Call it
// once. With a folder that another process keeps fresh it takes over when that one ends.
func (c *Client) Run(ctx context.Context) error { return c.updater.Run(ctx) }

// Check tells whether a URL or the name of a host is a threat. It is Unsafe only if the server has confirmed that
// within the last 30 minutes; Expires says how long that holds. It is Unsure, and Err says why, if the server cannot be asked
// in the time of ctx, may not be asked now, or while a list is missing (ErrNotReady). The error says that text is no URL.
func (c *Client) Check(ctx context.Context, text string) (lookup.Decision, error) {
	url, err := lookup.ParseURL(text)
	if err != nil {
		return lookup.Decision{}, err
	}
	ready := c.ready() // before it looks at the lists: one may come meanwhile
	decision := c.checker.CheckURL(ctx, url)
	if decision.Verdict == lookup.Safe && decision.By != lookup.ByNobody && !ready {
		return lookup.Decision{Verdict: lookup.Unsure, Err: ErrNotReady}, nil
	}
	return decision, nil
}

// Close cancels all searches and waits until they have ended, and until it is saved when the next ones may follow. It does
// not end Run. Later checks of what a list has are Unsure.
func (c *Client) Close() {
	c.checker.Close()
	c.schedule.Flush()
	c.server.Close()
}

// ready reports whether all lists are in force.
func (c *Client) ready() bool {
	in := c.database.Lists()
	return !slices.ContainsFunc(c.lists, func(name string) bool {
		return !slices.ContainsFunc(in, func(l lookup.List) bool { return l.Name == name })
	})
}
