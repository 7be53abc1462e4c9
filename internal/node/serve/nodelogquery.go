// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The documented limits of a query.
const (
	maxTailLines     = 100000
	maxServices      = 4
	maxServiceLength = 256
)

// journalTime is the layout of times that journalctl reads.
const journalTime = "2006-01-02 15:04:05"

// unsafeInService matches what the name of a service must not have, because the name becomes an argument of a command.
var unsafeInService = regexp.MustCompile(`[^a-zA-Z\-_.:0-9@]+`)

// nodeLogQuery is a query of the logs of a node's services, or of one file.
type nodeLogQuery struct {
	services, files []string
	since, until    *time.Time
	tail, boot      *int
	pattern         string
}

// parseNodeLogQuery returns the query of an URL, or nil if it has none.
func parseNodeLogQuery(values url.Values) (*nodeLogQuery, field.ErrorList) {
	var q nodeLogQuery
	var errs field.ErrorList
	for _, name := range values["query"] {
		switch {
		case strings.ContainsAny(name, `/\`):
			q.files = append(q.files, name)
		case strings.TrimSpace(name) != "":
			q.services = append(q.services, name)
		}
	}
	if values.Has("query") && len(q.files)+len(q.services) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("query"), values["query"], "may not be empty"))
	}
	q.since = parseOption(values, "sinceTime", &errs, parseTime)
	q.until = parseOption(values, "untilTime", &errs, parseTime)
	q.boot = parseOption(values, "boot", &errs, strconv.Atoi)
	q.tail = parseOption(values, "tailLines", &errs, strconv.Atoi)
	q.pattern = values.Get("pattern")
	if len(q.services)+len(q.files) == 0 && !q.hasOptions() {
		return nil, errs
	}
	return &q, errs
}

func parseOption[T any](values url.Values, name string, errs *field.ErrorList, parse func(string) (T, error)) *T {
	text := values.Get(name)
	if text == "" {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		*errs = append(*errs, field.Invalid(field.NewPath(name), text, err.Error()))
		return nil
	}
	return &value
}

func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("invalid time format")
	}
	return at, nil
}

// hasOptions reports whether the query selects lines.
func (q *nodeLogQuery) hasOptions() bool {
	return q.since != nil || q.until != nil || q.tail != nil || q.boot != nil || q.pattern != ""
}

// validate returns what is wrong with a query of the logs in a directory.
func (q *nodeLogQuery) validate(dir string) field.ErrorList {
	query := field.NewPath("query")
	var errs field.ErrorList
	for _, service := range q.services {
		if problem := serviceProblem(service); problem != "" {
			errs = append(errs, field.Invalid(query, service, problem))
		}
	}
	if len(q.services) > maxServices {
		errs = append(errs, field.TooMany(query, len(q.services), maxServices))
	}
	errs = append(errs, q.validateFiles(dir)...)
	if q.since != nil && q.until != nil && q.since.After(*q.until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.until, "must be after `sinceTime`"))
	}
	if q.boot != nil && *q.boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.boot, "must be less than 1"))
	}
	if q.tail != nil {
		for _, problem := range validation.IsInRange(*q.tail, 0, maxTailLines) {
			errs = append(errs, field.Invalid(field.NewPath("tailLines"), *q.tail, problem))
		}
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.pattern, err.Error()))
	}
	return errs
}

func (q *nodeLogQuery) validateFiles(dir string) field.ErrorList {
	query := field.NewPath("query")
	switch {
	case len(q.files)+len(q.services) == 0:
		return field.ErrorList{field.Required(query, "cannot be empty with options")}
	case len(q.files) == 0:
		return nil
	case len(q.services) > 0:
		return field.ErrorList{field.Invalid(query, fmt.Sprintf("%v, %v", q.files, q.services), "cannot specify a file and service")}
	case len(q.files) > 1:
		return field.ErrorList{field.Invalid(query, q.files, "cannot specify more than one file")}
	case q.hasOptions():
		return field.ErrorList{field.Invalid(query, q.files, "cannot specify file with options")}
	}
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		_, err = root.Stat(strings.TrimLeft(strings.ReplaceAll(q.files[0], `\`, "/"), "/"))
	}
	if err != nil {
		return field.ErrorList{field.Invalid(query, q.files, err.Error())}
	}
	return nil
}

// serviceProblem returns why a name cannot be that of a service, or "".
func serviceProblem(name string) string {
	switch {
	case len(name) > maxServiceLength:
		return fmt.Sprintf("length must be less than %d", maxServiceLength)
	case unsafeInService.MatchString(name):
		return "input contains unsupported characters"
	}
	return ""
}

// journalArguments returns the arguments of journalctl for services.
func (q *nodeLogQuery) journalArguments(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.since != nil {
		args = append(args, "--since="+q.since.UTC().Format(journalTime))
	}
	if q.until != nil {
		args = append(args, "--until="+q.until.UTC().Format(journalTime))
	}
	if q.tail != nil {
		args = append(args, "--pager-end", fmt.Sprintf("--lines=%d", *q.tail))
	}
	for _, service := range services {
		args = append(args, "--unit="+service)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, "--boot", strconv.Itoa(*q.boot))
	}
	return args
}
