// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// score is the agreement of the servers for one kind.
type score struct {
	Kind     string `json:"kind"`
	Requests int    `json:"requests"`
	// Agreed counts the requests that agree in all required aspects; Exact those that agree in all
	// aspects.
	Agreed int `json:"agreed"`
	Exact  int `json:"exact"`
	// Differing counts the requests that differ in an aspect.
	Differing map[aspect]int `json:"differing"`
	// Accepted counts the requests that upstream accepts. A run with hardly any, or with hardly any
	// others, proves little.
	Accepted int `json:"accepted"`
	// Unserved kinds are not served by Kindred, and do not count.
	Unserved bool `json:"unserved,omitempty"`
	// Blocked counts manifests that only Kindred refuses: an object that was not stored cannot be
	// tested.
	Blocked int `json:"blocked,omitempty"`
	// Complaints are the reasons why requests could not be sent.
	Complaints []string `json:"complaints,omitempty"`
}

// percent returns the agreement in per cent.
func (s score) percent() float64 {
	if s.Requests == 0 {
		return 0
	}
	return 100 * float64(s.Agreed) / float64(s.Requests)
}

func (t *trial) score() score {
	s := score{Kind: t.resource.String(), Requests: len(t.outcomes), Differing: map[aspect]int{}, Blocked: t.blocked, Complaints: t.complaint}
	for _, o := range t.outcomes {
		if o.Upstream.Code < 300 {
			s.Accepted++
		}
		differing := map[aspect]bool{}
		for _, d := range o.Differences {
			differing[d.Aspect] = true
		}
		agreed := true
		for a := range differing {
			s.Differing[a]++
			agreed = agreed && !slices.Contains(required, a)
		}
		if agreed {
			s.Agreed++
		}
		if len(differing) == 0 {
			s.Exact++
		}
	}
	return s
}

// report is the result of a run.
type report struct {
	Seed     uint64     `json:"seed"`
	Scores   []score    `json:"kinds"`
	Classes  []*class   `json:"classes"`
	Outcomes []*outcome `json:"differences"`
}

var reported = []aspect{aspectCode, aspectReason, aspectCauses, aspectObject, aspectMessages, aspectWarnings, aspectTable, aspectDiscovery}

// printScores prints the agreement by kind: the percentage, and for each aspect the number of
// requests that differ.
func printScores(w io.Writer, scores []score) {
	fmt.Fprintf(w, "\n%-58s %8s %8s %7s %7s ", "kind", "requests", "accepted", "agree", "exact")
	for _, a := range reported {
		fmt.Fprintf(w, " %9s", a)
	}
	fmt.Fprintln(w)
	total := score{Kind: "all that is served", Differing: map[aspect]int{}}
	var unserved []string
	for _, s := range scores {
		if s.Unserved {
			unserved = append(unserved, s.Kind)
			continue
		}
		printScore(w, s)
		total.Requests, total.Agreed, total.Exact, total.Accepted = total.Requests+s.Requests, total.Agreed+s.Agreed, total.Exact+s.Exact, total.Accepted+s.Accepted
		for a, n := range s.Differing {
			total.Differing[a] += n
		}
	}
	printScore(w, total)
	if len(unserved) > 0 {
		fmt.Fprintf(w, "\nnot served by kindred (%d): %s\n", len(unserved), strings.Join(unserved, ", "))
	}
	for _, s := range scores {
		for _, c := range s.Complaints {
			fmt.Fprintf(w, "%s: %s\n", s.Kind, clip(c, 600))
		}
	}
}

func printScore(w io.Writer, s score) {
	if s.Requests == 0 {
		fmt.Fprintf(w, "%-58s %8s\n", s.Kind, "none")
		return
	}
	fmt.Fprintf(w, "%-58s %8d %8d %6.2f%% %6.2f%% ", s.Kind, s.Requests, s.Accepted, s.percent(), 100*float64(s.Exact)/float64(s.Requests))
	for _, a := range reported {
		if n := s.Differing[a]; n > 0 {
			fmt.Fprintf(w, " %9d", n)
		} else {
			fmt.Fprintf(w, " %9s", "-")
		}
	}
	fmt.Fprintln(w)
}

// printClasses prints the largest classes of differences.
func printClasses(w io.Writer, classes []*class, most int) {
	if len(classes) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d classes of differences", len(classes))
	if len(classes) > most {
		fmt.Fprintf(w, ", of which the first %d (-top shows more)", most)
	}
	fmt.Fprintln(w, ":")
	for _, c := range classes[:min(most, len(classes))] {
		fmt.Fprintf(w, "\n%d× %s %s  [%s]\n  upstream: %s\n  kindred:  %s\n  example:  %s: %s\n",
			c.Count, c.Aspect, c.Field, clip(strings.Join(c.Kinds, ", "), 120), clip(c.Upstream, 300), clip(c.Kindred, 300), c.Example.ID, clip(c.Example.What, 240))
	}
}

// printMatching prints the requests whose number or description matches, as commands, with both
// responses.
func printMatching(w io.Writer, trials []*trial, pattern *regexp.Regexp, most int, differing bool) {
	shown, matched := 0, 0
	for _, t := range trials {
		for _, o := range t.outcomes {
			if differing && len(o.Differences) == 0 || !pattern.MatchString(o.ID+" "+o.What) && !matchesDifference(pattern, o) {
				continue
			}
			matched++
			if shown < most {
				shown++
				printOutcome(w, o)
			}
		}
	}
	fmt.Fprintf(w, "\n%d of %d requests that match are shown\n", shown, matched)
}

func matchesDifference(pattern *regexp.Regexp, o outcome) bool {
	return slices.ContainsFunc(o.Differences, func(d difference) bool {
		return pattern.MatchString(strings.Join([]string{string(d.Aspect), d.Field, d.Upstream, d.Kindred}, " "))
	})
}

func printOutcome(w io.Writer, o outcome) {
	fmt.Fprintf(w, "\n--- %s: %s\n%s\n", o.ID, o.What, o.Both.curl())
	fmt.Fprintf(w, "upstream: %d %s\n", o.Upstream.Code, strings.TrimSpace(string(o.Upstream.raw)))
	fmt.Fprintf(w, "kindred:  %d %s\n", o.Kindred.Code, strings.TrimSpace(string(o.Kindred.raw)))
	for _, d := range o.Differences {
		fmt.Fprintf(w, "%s %s\n  upstream: %s\n  kindred:  %s\n", d.Aspect, d.Field, d.Upstream, d.Kindred)
	}
}

// write writes the report as JSON.
func (r report) write(file string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
