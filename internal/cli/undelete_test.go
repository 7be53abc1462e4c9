// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	restfake "k8s.io/client-go/rest/fake"
	clocktesting "k8s.io/utils/clock/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// became returns an object of an undeletion. Its former UID is its name.
func became(outcome ownership.UndeletionOutcome, kind, name, reason string, owners ...types.UID) ownership.UndeletionResult {
	object := refTo(kind, name)
	object.UID = ""
	return ownership.UndeletionResult{Object: object, FormerUID: types.UID(name), Owners: owners, Outcome: outcome, Reason: reason}
}

func undeletionPrinted(review *ownership.Undeletion, all bool) string {
	return printed(func(cmd *cobra.Command) { printUndeletion(cmd, review, all, clocktesting.NewFakePassiveClock(noon)) })
}

func TestPrintUndeletion(t *testing.T) {
	review := &ownership.Undeletion{}
	review.Spec.Object = refTo("Deployment", "web")
	deletion := ago(5*time.Minute, refTo("Deployment", "web"), ownership.AgentUser, "jane", "kubectl/v1.37.1")
	elsewhere := became(ownership.UndeletionTaken, "Pod", "web-3", "an object of this name was created in the meantime", "set")
	elsewhere.Object.Namespace = "other"
	review.Status = ownership.UndeletionStatus{
		Phase: ownership.UndeletionIncomplete, Deletion: &deletion,
		Results: []ownership.UndeletionResult{
			became(ownership.UndeletionRestored, "Deployment", "web", ""),
			became(ownership.UndeletionRestored, "ReplicaSet", "set", "", "web"),
			became(ownership.UndeletionAdopted, "Pod", "web-1", "", "set"),
			became(ownership.UndeletionPending, "Pod", "web-2", "", "set"),
			elsewhere,
			became(ownership.UndeletionLeft, "ConfigMap", "own", "it was deleted on its own, by jane at 2026-01-01T12:00:00Z", "web"),
			became(ownership.UndeletionUnchanged, "ConfigMap", "there", "", "web"),
		},
		Restored: 2, Adopted: 1, Left: 2, Pending: 1,
		Problems: []string{"Pod shop/web-2: " + strings.Repeat("refused ", 15)},
		Warnings: []string{"the status of something could not be restored"},
	}
	want := `Deployment shop/web was deleted 5m ago by jane (kubectl) with policy Background.

OBJECT                    OUTCOME    NOTES
Deployment/web            restored
├─ ConfigMap/own          left       it was deleted on its own, by jane at 2026-01-01T12:00:00Z
├─ ConfigMap/there        unchanged
└─ ReplicaSet/set         restored
   ├─ Pod/web-3 in other  taken      an object of this name was created in the meantime
   ├─ Pod/web-1           adopted
   └─ Pod/web-2           pending

problem: Pod shop/web-2: refused refused refused refused refused refused refused refused refused
         refused refused refused refused refused refused
restored: 2, adopted: 1, left: 2, pending: 1
the status of something could not be restored
`
	if diff := cmp.Diff(want, undeletionPrinted(review, false)); diff != "" {
		t.Error(diff)
	}
}

// TestUndeletionFits: no line is wider than a table, whatever the names, reasons, problems and
// users, and output that does not go to a terminal is not coloured.
func TestUndeletionFits(t *testing.T) {
	t.Setenv("COLUMNS", strconv.Itoa(tableWidth))
	long := strings.Repeat("n", 253)
	review := &ownership.Undeletion{}
	review.Spec.Object = refTo("Deployment", long)
	deletion := ago(time.Hour, refTo("Deployment", "web"), ownership.AgentUser, "jane", "kubectl/v1", refTo("Set", "owner"))
	review.Status = ownership.UndeletionStatus{Phase: ownership.UndeletionRefused, Deletion: &deletion,
		Problems: []string{strings.Repeat("word ", 60)}, Warnings: []string{strings.Repeat("word ", 60)}}
	above := types.UID("")
	for depth := range 40 {
		result := became(ownership.UndeletionLeft, "Kind", fmt.Sprint(long[:depth*6], depth), strings.Repeat("a reason ", depth))
		if above != "" {
			result.Owners = []types.UID{above}
		}
		above = result.FormerUID
		review.Status.Results = append(review.Status.Results, result)
	}
	got := undeletionPrinted(review, true)
	if strings.Contains(got, "\x1b") {
		t.Errorf("coloured:\n%q", got)
	}
	if !strings.Contains(got, "…") {
		t.Errorf("no name is shortened:\n%s", got)
	}
	for line := range strings.Lines(got) {
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > tableWidth {
			t.Errorf("too wide: %s", line)
		}
	}
}

// TestUndeletionFolds: many similar objects are folded to a few; objects with a reason are always
// shown.
func TestUndeletionFolds(t *testing.T) {
	review := &ownership.Undeletion{}
	review.Spec.Object = refTo("ReplicaSet", "set")
	review.Status.Results = []ownership.UndeletionResult{became(ownership.UndeletionRestored, "ReplicaSet", "set", "")}
	for i := range 30 {
		outcome, reason := ownership.UndeletionRestored, ""
		if i == 20 {
			outcome, reason = ownership.UndeletionLeft, "said"
		}
		review.Status.Results = append(review.Status.Results, became(outcome, "Pod", fmt.Sprintf("pod-%02d", i), reason, "set"))
	}
	few := undeletionPrinted(review, false)
	if !strings.Contains(few, "… 20 more of kind Pod") || !strings.Contains(few, "Pod/pod-20 ") || strings.Contains(few, "Pod/pod-15") {
		t.Errorf("not folded:\n%s", few)
	}
	if all := undeletionPrinted(review, true); strings.Count(all, "Pod/") != 30 {
		t.Errorf("not all:\n%s", all)
	}
}

// TestUndeletionColours: restored objects and others have different colours.
func TestUndeletionColours(t *testing.T) {
	for outcome, want := range map[ownership.UndeletionOutcome]colour{
		ownership.UndeletionRestored: green, ownership.UndeletionAdopted: green, ownership.UndeletionUnchanged: plain,
		ownership.UndeletionDenied: yellow, ownership.UndeletionTaken: yellow, ownership.UndeletionLeft: yellow, ownership.UndeletionPending: yellow,
	} {
		if got := undeletionColour(outcome); got != want {
			t.Errorf("%s: %q", outcome, got)
		}
	}
	result := became(ownership.UndeletionRestored, "Pod", "a", "")
	f := forest{heads: []string{"OBJECT", "OUTCOME", "NOTES"}, branches: []branch{undeletionBranch(ownership.UndeletionComplete, result, "shop")}}
	if got := f.render(painter{on: true}); !strings.Contains(got, string(green)+"restored") {
		t.Errorf("not coloured: %q", got)
	}
}

func TestTally(t *testing.T) {
	counts := ownership.UndeletionStatus{Restored: 3, Adopted: 2, Left: 1, Pending: 4}
	with := func(s ownership.UndeletionStatus, phase ownership.UndeletionPhase) *ownership.UndeletionStatus {
		s.Phase = phase
		return &s
	}
	for _, tt := range []struct {
		status  *ownership.UndeletionStatus
		want    string
		verdict string
	}{
		{with(counts, ownership.UndeletionComplete), "restored: 3, adopted: 2, left: 1, pending: 4", ""},
		{with(counts, ownership.UndeletionPlanned), "would be restored: 3, adopted: 2, left: 1, pending: 4", ""},
		{with(ownership.UndeletionStatus{Restored: 1, Denied: 2, Pending: 4}, ownership.UndeletionRefused), "would be restored: 5, denied: 2", "the undeletion is refused, and nothing was changed"},
		{with(counts, ownership.UndeletionIncomplete), "restored: 3, adopted: 2, left: 1, pending: 4", "the undeletion has made no progress for 2m, and the restored objects are on hold; run the same command again to continue"},
		{with(ownership.UndeletionStatus{Pending: 1, Problems: []string{"a quota"}}, ownership.UndeletionIncomplete), "restored: 0, pending: 1", "the undeletion is incomplete, and the restored objects are on hold; run the same command again to continue"},
		{with(ownership.UndeletionStatus{}, ownership.UndeletionComplete), "restored: 0", ""},
	} {
		if got := tallyOf(tt.status); got != tt.want {
			t.Errorf("%s: %q", tt.status.Phase, got)
		}
		verdict := ""
		if err := verdictOf(tt.status); err != nil {
			verdict = err.Error()
		}
		if verdict != tt.verdict {
			t.Errorf("%s ends with %q", tt.status.Phase, verdict)
		}
	}
}

// TestWarningsOfEachRequest: an undeletion that takes several requests shows the warnings of all.
func TestWarningsOfEachRequest(t *testing.T) {
	answers := []ownership.UndeletionStatus{
		{Phase: ownership.UndeletionIncomplete, Pending: 2, Warnings: []string{"the status of one could not be restored"}},
		{Phase: ownership.UndeletionIncomplete, Pending: 1, Warnings: []string{"the status of one could not be restored", "the status of two could not be restored"}},
		{Phase: ownership.UndeletionComplete, Restored: 3},
	}
	scheme := runtime.NewScheme()
	if err := ownership.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &reviewer{client: &restfake.RESTClient{
		NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), GroupVersion: ownership.SchemeGroupVersion,
		Client: restfake.CreateHTTPClient(func(*http.Request) (*http.Response, error) {
			answer := ownership.Undeletion{Status: answers[0]}
			answer.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind("Undeletion"))
			answers = answers[1:]
			body, err := json.Marshal(answer)
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
		}),
	}}
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	if err := (&undeletion{}).undelete(cmd, r, &ownership.Undeletion{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the status of one could not be restored", "the status of two could not be restored"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("not exactly one warning %s:\n%s", want, &out)
		}
	}
}

// TestPrintDeletions: each deletion is on one line that fits the terminal.
func TestPrintDeletions(t *testing.T) {
	t.Setenv("COLUMNS", strconv.Itoa(tableWidth))
	elsewhere := refTo("Deployment", strings.Repeat("n", 200))
	elsewhere.Namespace = "other"
	timeless := ago(0, refTo("ConfigMap", "c"), ownership.AgentUnknown, "", "")
	timeless.Time = nil
	s := &ownership.DeletionHistoryStatus{
		Since: &metav1.Time{Time: noon.Add(-time.Hour)}, Hidden: 2,
		Deletions: []ownership.ExplainedDeletion{
			ago(5*time.Minute, refTo("Deployment", "web"), ownership.AgentUser, "jane", "kubectl/v1.37.1"),
			ago(6*time.Minute, elsewhere, ownership.AgentServiceAccount, "system:serviceaccount:shop:"+strings.Repeat("d", 60), "helm/3"),
			timeless,
		},
	}
	print := func(everywhere bool) string {
		return printed(func(cmd *cobra.Command) { printDeletions(cmd, s, everywhere, clocktesting.NewFakePassiveClock(noon)) })
	}
	want := `AGE  OBJECT                                                POLICY      BY
5m   Deployment/shop/web                                   background  jane (kubectl)
6m   Deployment/other/nnnnnnnnnnnnnn…nnnnnnnnnnnnnnnnnnnn  background  service account shop/ddddddd…
     ConfigMap/shop/c                                      background  (user not recorded)

3 deletions since 2026-01-01T11:00:00Z can be undone, 2 more objects that you may not read
`
	if diff := cmp.Diff(want, print(true)); diff != "" {
		t.Error(diff)
	}
	for line := range strings.Lines(print(false)) {
		if utf8.RuneCountInString(line) > tableWidth+1 {
			t.Errorf("too wide: %s", line)
		}
	}
	if got := print(false); !strings.Contains(got, "  Deployment/web  ") {
		t.Errorf("in one namespace:\n%s", got)
	}
	s = &ownership.DeletionHistoryStatus{}
	if got := print(true); got != "0 deletions can be undone\n" {
		t.Errorf("without deletions: %q", got)
	}
}

// TestTimeOf: --at accepts times and durations.
func TestTimeOf(t *testing.T) {
	for text, want := range map[string]*metav1.Time{
		"": nil, "10m": {Time: noon.Add(-10 * time.Minute)}, "2026-01-01T11:00:00Z": {Time: noon.Add(-time.Hour)},
	} {
		if got, err := timeOf(text, clocktesting.NewFakePassiveClock(noon)); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"-10m", "0s", "yesterday", "2026-01-01"} {
		if got, err := timeOf(text, clocktesting.NewFakePassiveClock(noon)); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestUndeleteFlags: invalid combinations of flags are refused before the cluster is contacted.
func TestUndeleteFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		u    undeletion
		args []string
		ok   bool
	}{
		"an object":                      {undeletion{}, []string{"a/b"}, true},
		"a list":                         {undeletion{list: true, allNamespaces: true}, nil, true},
		"nothing":                        {undeletion{}, nil, false},
		"an unknown output format":       {undeletion{output: "table"}, []string{"a/b"}, false},
		"a list, dry run":                {undeletion{list: true, dryRun: true}, nil, false},
		"a list, with --at":              {undeletion{list: true, at: "1m"}, nil, false},
		"a list, with --uid":             {undeletion{list: true, uid: "a"}, nil, false},
		"all namespaces, without a list": {undeletion{allNamespaces: true}, []string{"a/b"}, false},
	} {
		if err := tt.u.check(tt.args); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
