// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// candidates returns values for schema n under a key: allowed ones, forbidden ones, and ones of the
// wrong type.
func (s *schemas) candidates(n *schemaNode, key string) []any {
	n = s.resolve(n)
	switch {
	case n.is("Quantity"):
		return []any{"0", "1", "-1", "100m", "1.5", "2Mi", "0.1m", "1e3", "8Ei", "x", "", int64(3), true}
	case n.is("IntOrString") || n.Format == "int-or-string":
		return []any{int64(0), int64(1), int64(-1), int64(80), int64(65536), "0%", "25%", "100%", "150%", "-5%", "x", "http", "80", "", true}
	case n.is("Time") || n.is("MicroTime") || n.Format == "date-time":
		return []any{"2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456Z", "2024-01-02", "yesterday", "", int64(7)}
	}
	switch n.Type {
	case "string":
		return stringCandidates(n, key)
	case "integer":
		return []any{int64(0), int64(1), int64(-1), int64(2), int64(10), int64(80), int64(101), int64(600), int64(65536), int64(1<<31 - 1), int64(1 << 31), int64(1 << 40), "1"}
	case "number":
		return []any{int64(0), 0.5, int64(-1), int64(1e6), "1"}
	case "boolean":
		return []any{true, false, "true"}
	case "array":
		return s.listCandidates(n, key)
	}
	return s.objectCandidates(n, key)
}

func (s *schemas) listCandidates(n *schemaNode, key string) []any {
	item := s.example(n.Items, key, 0)
	all := []any{[]any{}, []any{item}, []any{item, item}, []any{nil}, "x", map[string]any{}}
	if s.resolve(n.Items).Type == "string" {
		for _, value := range stringCandidates(s.resolve(n.Items), key) {
			all = append(all, []any{value})
		}
	}
	for _, value := range s.resolve(n.Items).partial(s, key) {
		all = append(all, []any{value})
	}
	return all
}

func (s *schemas) objectCandidates(n *schemaNode, key string) []any {
	all := []any{map[string]any{}, "x", []any{}, nil}
	if len(n.Properties) > 0 {
		return append(append(all, s.example(n, key, 0), map[string]any{unknownField: "x"}), n.partial(s, key)...)
	}
	if n.AdditionalProperties == nil {
		return append(all, map[string]any{"a": "b"})
	}
	value := s.example(n.AdditionalProperties, key, 0)
	for _, k := range []string{"a", "a.b/c", "", "Bad Key!", "-a", "/a", "a/b/c", strings.Repeat("k", 70), "kubernetes.io/a", "cpu", "requests.cpu", "example.com/a"} {
		all = append(all, map[string]any{k: value})
	}
	for _, v := range s.candidates(n.AdditionalProperties, key) {
		all = append(all, map[string]any{"a": v})
	}
	return all
}

// partial returns objects with the required properties and one more each.
func (n *schemaNode) partial(s *schemas, key string) []any {
	n = s.resolve(n)
	var all []any
	for _, property := range sortedKeys(n.Properties) {
		if n.requires(property) {
			continue
		}
		object, ok := s.example(n, key, 0).(map[string]any)
		if !ok {
			return nil
		}
		object[property] = s.example(n.Properties[property], property, 1)
		all = append(all, object)
	}
	return all
}

// deepest limits the depth of examples, for recursive schemas.
const deepest = 4

// example returns a plausible value with the required properties only.
func (s *schemas) example(n *schemaNode, key string, depth int) any {
	n = s.resolve(n)
	switch {
	case n.is("Quantity"):
		return "1"
	case n.is("IntOrString") || n.Format == "int-or-string":
		return int64(1)
	case n.is("Time") || n.is("MicroTime") || n.Format == "date-time":
		return "2024-01-02T03:04:05Z"
	case len(n.Enum) > 0:
		return n.Enum[0]
	}
	switch n.Type {
	case "string":
		return plausible(key)
	case "integer", "number":
		return int64(1)
	case "boolean":
		return true
	case "array":
		if depth >= deepest {
			return []any{}
		}
		return []any{s.example(n.Items, key, depth+1)}
	}
	object := map[string]any{}
	if depth >= deepest {
		return object
	}
	for _, property := range n.Required {
		object[property] = s.example(n.Properties[property], property, depth+1)
	}
	if n.AdditionalProperties != nil {
		object["a"] = s.example(n.AdditionalProperties, key, depth+1)
	}
	return object
}

// byKey are values for keys with certain names.
var byKey = []struct {
	key    *regexp.Regexp
	values []any
}{
	{regexp.MustCompile(`(?i)(ip|ips|address|addresses|host|ranges|cidr|cidrs)$`), []any{"1.2.3.4", "01.2.3.4", "::1", "2001:db8::1", "2001:DB8::1", "127.0.0.1", "169.254.0.1", "0.0.0.0", "224.0.0.1", "10.0.0.0/24", "10.0.0.1/24", "2001:db8::/64", "::ffff:1.2.3.4", "None"}},
	{regexp.MustCompile(`(?i)path`), []any{"/abs", "rel", "../x", "/a/../b", "a:b", "/", `C:\x`, "metadata.name", "metadata.labels['a']", "status.podIP"}},
	{regexp.MustCompile(`(?i)(url|uri|server)$`), []any{"https://example.com/x", "http://example.com", "https://u:p@example.com/x?y#z", "nfs.example.com"}},
	{regexp.MustCompile(`(?i)(expression|rule|expressions|variables)$`), []any{"true", "1 +", "object.metadata.name == 'a'", "1", "self.x > 1"}},
	{regexp.MustCompile(`^schedule$`), []any{"*/5 * * * *", "@daily", "* * * *", "TZ=UTC 0 0 * * *", "0 0 31 2 *"}},
	{regexp.MustCompile(`^timeZone$`), []any{"Europe/Berlin", "Local", "Nowhere/None", "UTC"}},
	{regexp.MustCompile(`(?i)(name|key|keys|driver|provisioner|type|reason|class)$`), []any{"example.com/x", "kubernetes.io/x", "node-role.kubernetes.io/x", "a_b", "system:x", "default", "1", strings.Repeat("a.", 130)}},
	{regexp.MustCompile(`(?i)(verbs|apigroups|resources|operations|verb|resource|scope)$`), []any{"*", "*/*", "pods", "pods/*", "get", "CREATE", "a/b/c", "apps"}},
	{regexp.MustCompile(`(?i)apiVersion`), []any{"v1", "apps/v1", "a/b/c", "v9"}},
	{regexp.MustCompile(`(?i)operator`), []any{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal"}},
	{regexp.MustCompile(`(?i)protocol`), []any{"TCP", "UDP", "SCTP", "tcp"}},
	{regexp.MustCompile(`(?i)status$`), []any{"True", "False", "Unknown"}},
	{regexp.MustCompile(`(?i)(finalizers)$`), []any{"example.com/hold", "kubernetes", "orphan", "foregroundDeletion"}},
}

// stringCandidates returns values for a string.
func stringCandidates(n *schemaNode, key string) []any {
	all := []any{"", "Bogus", int64(7)}
	if len(n.Enum) > 0 {
		return append(append(all, n.Enum...), strings.ToLower(fmt.Sprint(n.Enum[0])))
	}
	if n.Format == "byte" {
		return append(all, "aGVsbG8=", "!!", "e30=")
	}
	all = append(all, "a", "a.b", "a/b", "-bad-", "a b", "UPPER", strings.Repeat("x", 64), strings.Repeat("y", 300))
	for _, hint := range byKey {
		if hint.key.MatchString(key) {
			all = append(all, hint.values...)
		}
	}
	return all
}

// plausible returns a string that is usually valid for a key.
func plausible(key string) any {
	for _, hint := range byKey[:7] {
		if hint.key.MatchString(key) && !strings.HasSuffix(strings.ToLower(key), "name") {
			return hint.values[0]
		}
	}
	return "a"
}
