// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Values that servers generate differ. A value that both have stored, and that clients may send
// back, has an alias: Kindred's is read as upstream's. A value that was generated for the response
// is masked by its shape, unless the client sent it.

// randomSuffix matches the suffix of generated names: five characters without vowels, so that they
// form no words.
const randomSuffix = `[bcdfghjklmnpqrstvwxz2456789]{5}\b`

// shape is the form of a generated value.
type shape struct {
	name    string
	pattern *regexp.Regexp
}

// shapes are in the order in which they are matched.
var shapes = []shape{
	{"<token>", regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`)},
	{"<uid>", regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)},
	{"<time>", regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)( \w+)?( m=[+-][\d.]+)?`)},
	{"kube-api-access-<random>", regexp.MustCompile(`kube-api-access-` + randomSuffix)},
	{"X509SHA256=<hash>", regexp.MustCompile(`X509SHA256=[0-9a-f]{64}`)},
	{"<pointer>", regexp.MustCompile(`0xc[0-9a-f]{6,}`)},
	{"<service IP>", regexp.MustCompile(`\b10\.96\.\d+\.\d+\b`)},
}

// aliases map Kindred's generated values to upstream's.
type aliases map[string]string

// learn derives aliases from the two servers' versions of one object.
func (a aliases) learn(upstream, kindred any) {
	switch up := upstream.(type) {
	case map[string]any:
		other, _ := kindred.(map[string]any)
		for key, value := range up {
			a.learn(value, other[key])
			a.learnNamed(key, value, other[key])
		}
	case []any:
		other, _ := kindred.([]any)
		for i := range min(len(up), len(other)) {
			a.learn(up[i], other[i])
		}
	case string:
		other, ok := kindred.(string)
		if ok && other != up && madeUp(up) && madeUp(other) && !isRecent(up) {
			a[other] = up
		}
	}
}

// learnNamed adds an alias for a value that is known by its key rather than by its shape.
func (a aliases) learnNamed(key string, upstream, kindred any) {
	up, isString := upstream.(string)
	other, ok := kindred.(string)
	if isString && ok && key == "resourceVersion" && up != other {
		a[other] = up
	}
}

// madeUp reports whether a string has the shape of a generated value.
func madeUp(s string) bool {
	return slices.ContainsFunc(shapes, func(known shape) bool { return s != "" && known.pattern.FindString(s) == s })
}

// replace replaces Kindred's values by upstream's, the longest first.
func (a aliases) replace(s string) string {
	names := slices.SortedFunc(maps.Keys(a), func(x, y string) int {
		if len(x) != len(y) {
			return len(y) - len(x)
		}
		return strings.Compare(x, y)
	})
	for _, name := range names {
		if len(name) < telling {
			// A resourceVersion is only a number, so it must match as a whole.
			if s == name {
				return a[name]
			}
			continue
		}
		s = strings.ReplaceAll(s, name, a[name])
	}
	return s
}

// restore replaces upstream's values by Kindred's in a body for Kindred, because mutations are made
// from upstream's objects.
func (a aliases) restore(body []byte) []byte {
	for _, kindred := range sortedKeys(a) {
		if upstream := a[kindred]; len(upstream) >= telling {
			body = bytes.ReplaceAll(body, []byte(upstream), []byte(kindred))
		}
	}
	return body
}

// telling is the length from which a value is distinctive enough to be replaced anywhere.
const telling = 8

// mask hides generated values in the response to a request with the body sent.
type mask struct {
	sent string
	// names are empty for upstream.
	names aliases
	// generated is the prefix of a name with a random suffix.
	generated string
}

func (m mask) text(s string) string {
	s = m.names.replace(s)
	for _, known := range shapes {
		s = known.pattern.ReplaceAllStringFunc(s, func(found string) string {
			if strings.Contains(m.sent, found) && !isRecent(found) {
				return found
			}
			return known.name
		})
	}
	s = versionInText.ReplaceAllString(s, "$1<version>")
	if m.generated != "" {
		s = regexp.MustCompile(`\b`+regexp.QuoteMeta(m.generated)+randomSuffix).ReplaceAllString(s, m.generated+"<random>")
	}
	return s
}

// versionInText matches the parts of messages with resourceVersions or whole objects.
var versionInText = regexp.MustCompile(`(ResourceVersion in object meta: |in record \(|resourceVersion\\?":\\?")\d+`)

// isRecent reports whether s is a time of this run. Clients may have sent it back; times of
// manifests and mutations are long past.
func isRecent(s string) bool {
	now := time.Now().UTC()
	return strings.HasPrefix(s, now.Format(time.DateOnly)) || strings.HasPrefix(s, now.Add(-time.Hour).Format(time.DateOnly))
}

// value masks an object. The result shares nothing with the argument.
func (m mask) value(value any) any {
	switch value := value.(type) {
	case map[string]any:
		masked := make(map[string]any, len(value))
		for key, v := range value {
			// Keys of managed fields contain names.
			masked[m.text(key)] = m.keyed(key, v)
		}
		return masked
	case []any:
		for i := range value {
			value[i] = m.value(value[i])
		}
		return value
	case string:
		return m.text(value)
	}
	return value
}

// keyed masks a value that is known by its key.
func (m mask) keyed(key string, value any) any {
	switch key {
	case "resourceVersion":
		if text, ok := value.(string); ok && text != "" {
			return "<version>"
		}
	case "resourceRules", "nonResourceRules":
		// The list comes from a cache, in no order.
		if list, ok := value.([]any); ok {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(string(encode(a)), string(encode(b))) })
		}
	case "nodePort", "healthCheckNodePort":
		if port, ok := value.(int64); ok && port != 0 && !strings.Contains(m.sent, fmt.Sprintf(`:%d`, port)) {
			return "<port>"
		}
	}
	return m.value(value)
}
