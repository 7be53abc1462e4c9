// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCut(t *testing.T) {
	for text, want := range map[string]string{
		"deployment.apps/web":                                               "deployment.apps/web",
		"clusterrolebinding.rbac.authorization.k8s.io/fleet":                "clusterrolebinding.…/fleet",
		"networkpolicy.networking.k8s.io/of-a-name-too-long":                "networkpolicy.…/of-a-…long",
		"configmap/a-name-that-is-longer-than-all":                          "configmap/a-name-t…han-all",
		"devmachine.infrastructure.cluster.x-k8s.io/c1-c3-x":                "devmachine.infras…/c1-c3-x",
		"devmachine.infrastructure.cluster.x-k8s.io/c1-md-0-jwxhz-c3-fjxrt": "devmachine.…/c1-md-…-fjxrt",
		"a-name-without-a-kind-and-of-many-words":                           "a-name-withou…f-many-words",
		"copying deployment.apps/web into the other cluster":                "copying deployment.apps/w…",
	} {
		if got := cut(text, 26); got != want {
			t.Errorf("%q was cut to %q, want %q", text, got, want)
		}
	}
}

// TestCutProperties: a text that fits is unchanged. Any other text is cut to exactly the width,
// contains an ellipsis, keeps its beginning and, unless it is a sentence, its end.
func TestCutProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 1))
	const alphabet = "ab-./ é"
	for range 20_000 {
		var text strings.Builder
		for range rng.IntN(40) {
			runes := []rune(alphabet)
			text.WriteRune(runes[rng.IntN(len(runes))])
		}
		checkCut(t, text.String(), rng.IntN(45)-2)
	}
	for _, text := range []string{"", "/", "a/", "/a", ".", "./", ".a/b", "a./b", "a.b/", "a.b.c/d/e", "devmachine.infrastructure.cluster.x-k8s.io/c1-md-0-jwxhz-c3-fjxrt"} {
		for width := range 70 {
			checkCut(t, text, width)
		}
	}
}

func checkCut(t *testing.T, text string, width int) {
	t.Helper()
	got := cut(text, width)
	n, full := utf8.RuneCountInString(got), utf8.RuneCountInString(text)
	if n != max(0, min(full, width)) {
		t.Fatalf("%q of %d columns was cut for %d to %q, which has %d", text, full, width, got, n)
	}
	if full <= width || width <= 0 {
		if full <= width && got != text {
			t.Fatalf("%q fits into %d columns, and became %q", text, width, got)
		}
		return
	}
	first, _ := utf8.DecodeRuneInString(text)
	last, _ := utf8.DecodeLastRuneInString(text)
	switch end, _ := utf8.DecodeLastRuneInString(got); {
	case !strings.Contains(got, "…"):
		t.Fatalf("%q was cut for %d to %q, without an ellipsis", text, width, got)
	case width > 2 && !strings.HasPrefix(got, string(first)):
		t.Fatalf("%q was cut for %d to %q, with another beginning", text, width, got)
	case width > 2 && !strings.Contains(text, " ") && end != last:
		t.Fatalf("%q was cut for %d to %q, with another end", text, width, got)
	}
}

func TestLayOut(t *testing.T) {
	rows := [][]string{{"OBJECT", "NOTE"}, {"configmap/a-name-that-is-longer-than-all", "and what there is to say about it"}}
	if got := layOut(unlimited, rows, 20)[1]; got != strings.Join(rows[1], "  ") {
		t.Errorf("cut for no terminal: %q", got)
	}
	if got, want := layOut(50, rows, 20)[1], "configmap/a-nam…-all  and what there is to say ab…"; got != want {
		t.Errorf("for a narrow terminal: %q, want %q", got, want)
	}
}
