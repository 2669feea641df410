package status

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// chart is a day's line: the questions of each hour as a line, and below it what was blocked as bars,
// each with a scale of its own.
type chart struct {
	Label       string   // for those who do not see it
	Line        string   // points of an SVG polyline
	Bars        []bar    // of the hours
	Hours       []string // local time, at equal distances
	Checked     int
	Blocked     int
	MostChecked int // questions in an hour
	MostBlocked int // blocked in an hour
}

// bar is what was blocked in an hour.
type bar struct {
	X, Y, Height float64
	Text         string
}

// The measures of a chart. An hour is hourWidth wide; the line has the upper part, the bars the lower.
const (
	hourWidth  = 20
	lineHeight = 40
	barsTop    = 48
	barsHeight = 24
)

// chartOf draws the last 24 hours before now; nil: there was no question.
func chartOf(day Day, now time.Time) *chart {
	c := new(chart)
	for _, h := range day.Hours {
		c.Checked, c.MostChecked = c.Checked+h.Checked, max(c.MostChecked, h.Checked)
		c.Blocked, c.MostBlocked = c.Blocked+h.Blocked, max(c.MostBlocked, h.Blocked)
	}
	if c.Checked == 0 && c.Blocked == 0 {
		return nil
	}
	c.Label = fmt.Sprintf("The last 24 hours: %s questions, at most %s in an hour, and %s blocked, at most %s in an hour.",
		say.Number(c.Checked), say.Number(c.MostChecked), say.Number(c.Blocked), say.Number(c.MostBlocked))
	var line strings.Builder
	for i, h := range day.Hours {
		began := now.Local().Add(-time.Duration(len(day.Hours)-1-i) * time.Hour).Format("15:00")
		fmt.Fprintf(&line, "%d,%.1f ", i*hourWidth+hourWidth/2, lineHeight-part(h.Checked, c.MostChecked)*(lineHeight-2))
		height := part(h.Blocked, c.MostBlocked) * barsHeight
		c.Bars = append(c.Bars, bar{float64(i * hourWidth), barsTop + barsHeight - height, height,
			fmt.Sprintf("%s: %s of %s questions blocked", began, say.Number(h.Blocked), say.Number(h.Checked))})
		if i%6 == 0 {
			c.Hours = append(c.Hours, began)
		}
	}
	c.Line = strings.TrimSpace(line.String())
	return c
}

func part(n, most int) float64 { return float64(max(n, 0)) / float64(max(most, 1)) }

// clock prints when something is or was, in local time and in UTC, with the date if that is not today.
func clock(t, now time.Time) string {
	form := "15:04"
	if t.Local().Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
		form = time.DateOnly + " 15:04"
	}
	text := t.Local().Format(form + " MST")
	if _, offset := t.Local().Zone(); offset == 0 {
		return t.UTC().Format(form + " UTC")
	}
	return text + t.UTC().Format(" (15:04 UTC)")
}

// shortAge prints a duration for a narrow column.
func shortAge(d time.Duration) string {
	if d < time.Minute {
		return "<1m"
	}
	age := say.Age(d)
	if hours, ok := strings.CutSuffix(age, "h0m"); ok {
		return hours + "h"
	}
	return age
}

// listWords returns what a list is called on the page: what it holds, or its file.
func listWords(list string) string {
	title := say.TitleOf(list)
	if title == list && !strings.Contains(list, "://") {
		title = filepath.Base(list)
	}
	if title == say.TitleOf(list) && title != list {
		title = strings.ToUpper(title[:1]) + title[1:]
	}
	return title
}
