package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// lateFetch is how long after its time a fetch is late: CoreDNS does not run.
const lateFetch = time.Hour

// byURLDiagnosis adds to the diagnosis of a list what CoreDNS saved about its fetches.
func byURLDiagnosis(d diagnosis, c ownlist.URLConfig, now time.Time) diagnosis {
	if c.DB == "" {
		return diagnosis{d.Check, isSkipped, text(c.Name() + ": only CoreDNS has it, in a temporary file: see its log and metrics"), ""}
	}
	s, err := ownlist.ReadURLState(c)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return diagnosis{d.Check, isWarning, text(err.Error()), "nothing: CoreDNS fetches the list again"}
	case s.Changed.IsZero() && s.Failing():
		return diagnosis{d.Check, isProblem, text(fmt.Sprintf("%s has no effect: it was never fetched. %s; next attempt %s", c.Name(), s.Error, say.Time(s.Next))),
			"open the URL in a browser, and correct it in the Corefile if it does not lead to a list; else look at the network"}
	case s.Changed.IsZero():
		return diagnosis{d.Check, isWarning, text(c.Name() + " has no effect: it has not been fetched yet"), "start CoreDNS: it fetches the list at once"}
	}
	d.Text += text(fmt.Sprintf("; fetched %s, next fetch %s", say.Time(s.Checked), say.Time(s.Next)))
	advice := text("")
	switch {
	case s.Failing():
		d.Text += text(fmt.Sprintf("; not updated since %s: %s", say.Time(s.Since), s.Error))
		advice = "open the URL in a browser, and correct it in the Corefile if it does not lead to a list; else look at the network"
	case now.Sub(s.Next) > lateFetch:
		advice = "start CoreDNS: the next fetch is late"
	}
	if advice != "" && d.Status == isOK {
		d.Status, d.Advice = isWarning, advice
	}
	return d
}
