package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// fetchTimeout is how long the lists of one server may take to arrive.
const fetchTimeout = 2 * time.Minute

// endpoints examines servers that the command line names, as a client of theirs.
func (e *examination) endpoints(ctx context.Context, c *cli.Command) error {
	cfg, err := config.ParseFlags(c, "off")
	if err != nil {
		return err
	}
	o := block.New(cfg)
	if err := o.Validate(); err != nil {
		return err
	}
	if err := o.Read(); err != nil {
		return err
	}
	defer o.End()
	e.asClient, e.Secrets, e.interrupted = true, append(e.Secrets, o.Config.Secret), ctx.Err
	for _, warning := range o.Config.Warnings {
		e.tell(diagnosis{"endpoint", isWarning, text(warning), "change the flag if this is not what you want"})
	}
	e.tell(keyDiagnosis(o, time.Now()))
	e.secrecy(o)
	e.servers(ctx, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return e.Sum()
}

// use does what a client does: it fetches the lists and confirms an entry.
func (e *examination) use(ctx context.Context, o *block.Block, client protocol.Client, offered []protocol.ListInfo) {
	if o.Settings.Google() {
		e.tell(diagnosis{"lists", isSkipped, "Google's rules are for all requests with a key: only CoreDNS fetches lists", ""})
		return
	}
	var names []string
	for _, name := range o.Settings.Stored() {
		if slices.ContainsFunc(offered, func(l protocol.ListInfo) bool { return l.Name == name }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 { // the check of the server says so
		return
	}
	got, err := fetchLists(ctx, client, names)
	e.tell(fetchedDiagnosis(got, err))
	if err != nil {
		return
	}
	for _, l := range got {
		if l.err == nil && l.entries > 0 {
			ctx, cancel := context.WithTimeout(ctx, serverTimeout)
			defer cancel()
			answer, err := client.Search(ctx, []lookup.Prefix{l.first})
			e.tell(confirmDiagnosis(l.name, answer, err))
			return
		}
	}
	e.tell(diagnosis{"confirm", isSkipped, "the lists have no entry to confirm", ""})
}

// servedList is a list as a server sends it to a new client.
type servedList struct {
	name    string
	entries int
	first   lookup.Prefix // of 4 bytes; of an empty list: none
	wait    time.Duration // the minimum wait
	err     error         // the list failed its checks
}

// fetchLists fetches lists in full and verifies their checksums.
func fetchLists(ctx context.Context, client protocol.Client, names []string) (all []servedList, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var wanted []updater.Want
	for _, name := range names {
		wanted = append(wanted, updater.Want{List: name})
		all = append(all, servedList{name: name, err: errors.New("it is not in the response")})
	}
	wait, err := client.Fetch(ctx, wanted, func(i int, u *updater.Update) {
		all[i] = received(names[i], u)
	})
	for i := range all {
		all[i].wait = max(all[i].wait, wait)
	}
	return all, err
}

// received reads a list.
func received(name string, u *updater.Update) servedList {
	s := servedList{name: name}
	list, _, err := updater.Apply(updater.List{Name: name}, u, updater.DefaultMaxEntries)
	if err != nil {
		s.err = err
		return s
	}
	s.entries, s.wait = list.Set.Len(), u.MinimumWait
	var first [4]byte
	if _, err := io.ReadFull(list.Set.Reader(), first[:]); err == nil {
		s.first = lookup.Prefix(first[:])
	}
	return s
}

// fetchedDiagnosis says which lists a server has sent, and when they may be fetched again.
func fetchedDiagnosis(all []servedList, err error) diagnosis {
	if err != nil {
		return diagnosis{"lists", isProblem, text(err.Error()), "see the log of the server; its clients keep their last lists and retry"}
	}
	var found, bad []string
	empty, wait := true, time.Duration(0)
	for _, l := range all {
		if l.err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", l.name, l.err))
			continue
		}
		found = append(found, l.name+" "+say.Count(l.entries, "entry", "entries"))
		empty, wait = empty && l.entries == 0, max(wait, l.wait)
	}
	summary := text(strings.Join(found, ", "))
	switch {
	case len(bad) > 0:
		return diagnosis{"lists", isProblem, text(strings.Join(bad, "; ")), "see the log of the server; its clients keep their last lists and retry"}
	case empty:
		return diagnosis{"lists", isProblem, summary + ": they protect from nothing", "see the log of the server: has it fetched its lists?"}
	case wait == 0:
		return diagnosis{"lists", isWarning, summary + "; without a minimum wait", "make sure that this is a server of Safe Browsing v5: clients ask it again after half an hour"}
	}
	return diagnosis{"lists", isOK, summary + text(fmt.Sprintf("; updates every %s", wait.Round(time.Second))), ""}
}

// confirmDiagnosis says what a server knows about the first entry of a list.
func confirmDiagnosis(list string, answer lookup.Answer, err error) diagnosis {
	status := new(updater.StatusError)
	switch {
	case errors.As(err, &status) && status.Code == http.StatusTooManyRequests:
		return diagnosis{"confirm", isProblem, text(err.Error()), text(passing(status.Obeyed(true)) + "; raise the server's limit or budget if this happens often")}
	case errors.As(err, &status) && status.Code >= 500:
		return diagnosis{"confirm", isProblem, text(err.Error()), text(passing(status.Obeyed(true)) + "; the log of the server says why")}
	case err != nil:
		return diagnosis{"confirm", isProblem, text(err.Error()), "see the log of the server"}
	}
	life := "not to be cached"
	if answer.TTL > 0 {
		life = "to be cached for " + answer.TTL.String()
	}
	return diagnosis{"confirm", isOK, text(fmt.Sprintf("the first entry of %s: %s, %s", list, say.Count(len(answer.Threats), "threat", "threats"), life)), ""}
}

// passing says for how long suspected names pass, if that is known.
func passing(wait time.Duration) string {
	if wait <= 0 {
		return "suspected names pass until it answers"
	}
	return fmt.Sprintf("suspected names pass for %s", wait)
}
