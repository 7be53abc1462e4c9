// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/test/servers"
)

const (
	contentJSON      = "application/json"
	contentJSONPatch = "application/json-patch+json"
	contentMerge     = "application/merge-patch+json"
	contentStrategic = "application/strategic-merge-patch+json"
	contentApply     = "application/apply-patch+yaml"

	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// request is one HTTP request, in a form for both servers.
type request struct {
	Method      string          `json:"method"`
	Path        string          `json:"path"`
	ContentType string          `json:"contentType,omitempty"`
	Accept      string          `json:"accept,omitempty"`
	Body        json.RawMessage `json:"body,omitempty"`
}

// curl returns the request as a command; $SERVER is either server with credentials.
func (r request) curl() string {
	var b strings.Builder
	fmt.Fprintf(&b, "curl -X %s \"$SERVER\"%s", r.Method, quote(r.Path))
	if r.Accept != "" {
		fmt.Fprintf(&b, " -H %s", quote("Accept: "+r.Accept))
	}
	if len(r.Body) > 0 {
		fmt.Fprintf(&b, " -H %s -d %s", quote("Content-Type: "+r.ContentType), quote(string(r.Body)))
	}
	return b.String()
}

// quote quotes a string for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// server is one of the two compared servers.
type server struct {
	*servers.Server
	http *http.Client
}

// connected returns a server with a connection.
func connected(s *servers.Server, err error) (*server, error) {
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(s.Config)
	return &server{s, client}, err
}

// answer is a server's response.
type answer struct {
	Code     int      `json:"code"`
	Warnings []string `json:"warnings,omitempty"`
	// Object is the body, if it is a JSON object. Status is the body, if it is a Status.
	Object map[string]any `json:"object,omitempty"`
	Status *metav1.Status `json:"-"`
	raw    []byte
}

// send sends one request. An error means a broken connection, never a response.
func (s *server) send(ctx context.Context, r request) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, s.Config.Host+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", contentJSON)
	if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	if len(r.Body) > 0 {
		req.Header.Set("Content-Type", r.ContentType)
	}
	req.Header.Set("User-Agent", "parity")
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return newAnswer(resp.StatusCode, resp.Header.Values("Warning"), body), nil
}

func newAnswer(code int, warnings []string, body []byte) *answer {
	a := &answer{Code: code, raw: body}
	for _, w := range warnings {
		a.Warnings = append(a.Warnings, warningText(w))
	}
	slices.Sort(a.Warnings)
	if utiljson.Unmarshal(body, &a.Object) != nil {
		a.Object = nil
		return a
	}
	if a.Object["kind"] == "Status" && a.Object["apiVersion"] == "v1" {
		status := &metav1.Status{}
		if json.Unmarshal(body, status) == nil {
			a.Status = status
		}
	}
	return a
}

// warningText returns the text of a warning header: 299 - "text".
func warningText(header string) string {
	_, quoted, found := strings.Cut(header, " - ")
	if !found {
		return header
	}
	if text, err := strconv.Unquote(quoted); err == nil {
		return text
	}
	return quoted
}

// get decodes JSON from a path.
func (s *server) get(ctx context.Context, path string, into any) error {
	answer, err := s.send(ctx, request{Method: http.MethodGet, Path: path})
	if err != nil {
		return err
	}
	if answer.Code != http.StatusOK {
		return fmt.Errorf("%s: GET %s: %d: %s", s.Name, path, answer.Code, answer.raw)
	}
	return json.Unmarshal(answer.raw, into)
}
