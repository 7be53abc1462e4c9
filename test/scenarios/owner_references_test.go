// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files of the article "owner references as a list", with its formatting errors corrected:
// indentation, and "postgres1.yaml", which it uses but does not show.
var articleFiles = map[string]string{
	"crd.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: databases.test.joshua.su
spec:
  group: test.joshua.su
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
  scope: Namespaced
  names:
    plural: databases
    singular: database
    kind: Database
    shortNames:
    - db
`,
	"postgres-cm.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: postgres-cm
data:
  config: "114514"
`,
	"postgres.yaml": `apiVersion: test.joshua.su/v1
kind: Database
metadata:
  name: postgres
`,
	"postgres1.yaml": `apiVersion: test.joshua.su/v1
kind: Database
metadata:
  name: postgres1
`,
}

// TestOwnerReferencesAsAList runs the commands of the article and checks for the output that it
// shows.
func TestOwnerReferencesAsAList(t *testing.T) {
	s := inNamespace(t, simulated.get(t), "default")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range articleFiles {
		if err := os.WriteFile(file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uid := func(database string) string {
		s.Helper()
		return s.kubectl("get", "database", database, "-o=jsonpath={.metadata.uid}")
	}
	patched := "configmap/postgres-cm patched\n"

	s.prints("customresourcedefinition.apiextensions.k8s.io/databases.test.joshua.su created\n", "create", "-f", file("crd.yaml"))
	s.prints("configmap/postgres-cm created\n", "create", "-f", file("postgres-cm.yaml"))
	s.prints("database.test.joshua.su/postgres created\n", "create", "-f", file("postgres.yaml"))

	// One owner.
	owner := uid("postgres")
	s.prints(patched, "patch", "configmap", "postgres-cm", "--type", "json", "-p",
		`[{"op": "add", "path": "/metadata/ownerReferences", "value": [{"apiVersion": "test.joshua.su/v1", "blockOwnerDeletion": true, "controller": true, "kind": "Database", "name": "postgres", "uid": "`+owner+`"}]}]`)
	s.contains(s.kubectl("get", "cm", "postgres-cm", "-o", "yaml"), `
  ownerReferences:
  - apiVersion: test.joshua.su/v1
    blockOwnerDeletion: true
    controller: true
    kind: Database
    name: postgres
    uid: `+owner+"\n")
	s.table("NAME DATA AGE\npostgres-cm 1 *", "get", "cm", "postgres-cm")
	s.table("NAME AGE\npostgres *", "get", "database", "postgres")
	s.table("NAME AGE\npostgres *", "get", "db")

	s.prints("database.test.joshua.su \"postgres\" deleted from default namespace\n", "delete", "database", "postgres")
	s.gone("cm", "postgres-cm")
	s.refused([]string{`Error from server (NotFound): configmaps "postgres-cm" not found`}, "get", "cm", "postgres-cm")

	// Two owners.
	s.prints("database.test.joshua.su/postgres created\ndatabase.test.joshua.su/postgres1 created\nconfigmap/postgres-cm created\n",
		"create", "-f", file("postgres.yaml"), "-f", file("postgres1.yaml"), "-f", file("postgres-cm.yaml"))
	first, second := uid("postgres"), uid("postgres1")
	s.prints(patched, "patch", "configmap", "postgres-cm", "--type", "json", "-p",
		`[{"op": "add", "path": "/metadata/ownerReferences", "value": [{"apiVersion": "test.joshua.su/v1", "blockOwnerDeletion": true, "controller": true, "kind": "Database", "name": "postgres", "uid": "`+first+`"}, {"apiVersion": "test.joshua.su/v1", "blockOwnerDeletion": true, "kind": "Database", "name": "postgres1", "uid": "`+second+`"}]}]`)
	s.prints(first+" "+second, "get", "cm", "postgres-cm", "-o", "jsonpath={.metadata.ownerReferences[*].uid}")

	// One owner is deleted: a shared dependent stays. The collector removes the reference, so the
	// test waits for that.
	s.prints("database.test.joshua.su \"postgres\" deleted from default namespace\n", "delete", "database", "postgres")
	s.eventually("the reference to the absent owner goes", func() error {
		if got := s.kubectl("get", "cm", "postgres-cm", "-o", "jsonpath={.metadata.ownerReferences[*].uid}"); got != second {
			return fmt.Errorf("owners are %s, not %s", got, second)
		}
		return nil
	})
	s.table("NAME DATA AGE\npostgres-cm 1 *", "get", "cm", "postgres-cm")

	// The last owner is deleted, and the dependent with it.
	s.prints("database.test.joshua.su \"postgres1\" deleted from default namespace\n", "delete", "database", "postgres1")
	s.gone("cm", "postgres-cm")
}

// TestOneControllerAtMost is the second half of the article: only one owner may be the controller.
func TestOneControllerAtMost(t *testing.T) {
	s := withoutNode(t)
	reference := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","name":"` + name + `","uid":"` + s.jsonpath("{.metadata.uid}", "cm", name) + `","controller":true}`
	}
	for _, name := range []string{"one", "two", "owned"} {
		s.kubectl("create", "configmap", name)
	}
	s.refused([]string{`The ConfigMap "owned" is invalid`, "metadata.ownerReferences", "Only one reference can have Controller set to true"},
		"patch", "cm", "owned", "-p", `{"metadata":{"ownerReferences":[`+strings.Join([]string{reference("one"), reference("two")}, ",")+`]}}`)
}

// TestDeletionPropagation: the three ways to delete an owner.
func TestDeletionPropagation(t *testing.T) {
	s := withoutNode(t)
	for _, name := range []string{"background", "foreground", "orphan"} {
		s.kubectl("create", "configmap", name)
		uid := s.jsonpath("{.metadata.uid}", "cm", name)
		s.apply(`
apiVersion: v1
kind: Secret
metadata:
  name: of-` + name + `
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: ` + name + `, uid: ` + uid + `, blockOwnerDeletion: true}]
`)
		s.kubectl("delete", "cm", name, "--cascade="+name)
		s.gone("cm", name)
	}
	s.gone("secret", "of-background")
	// An owner in foreground deletion is removed after its dependents.
	s.refused([]string{"NotFound"}, "get", "secret", "of-foreground")
	s.prints("", "get", "secret", "of-orphan", "-o", "jsonpath={.metadata.ownerReferences}")
}
