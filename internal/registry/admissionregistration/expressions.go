// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/kindred-project/kindred/internal/registry/check"
)

// maxMatchConditions is the maximum number of conditions of one webhook or policy.
const maxMatchConditions = 64

// plainCompiler returns the compiler of expressions that cannot use a policy's variables. It is
// created on first use, because that costs more than a request.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// newCompositedCompiler returns a compiler for one policy, which keeps the policy's variables.
func newCompositedCompiler() (*plugincel.CompositedCompiler, error) {
	return plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
}

// expressions checks the CEL of one object.
type expressions struct {
	compiler plugincel.Compiler
	// hasParams permits the variable params.
	hasParams bool
	// stored holds the expressions of the stored object.
	stored sets.Set[string]
}

func (e expressions) environment(expression string) environment.Type {
	if e.stored.Has(expression) {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

func (e expressions) declared() plugincel.OptionalVariableDeclarations {
	return plugincel.OptionalVariableDeclarations{HasParams: e.hasParams, HasAuthorizer: true}
}

// compile reports why the expression does not compile.
func (e expressions) compile(c *check.Checker, accessor plugincel.ExpressionAccessor, declared plugincel.OptionalVariableDeclarations, original string, path *field.Path) {
	result := e.compiler.CompileCELExpression(accessor, declared, e.environment(original))
	c.Expression(path, accessor.GetExpression(), result.Error)
}

// validateMatchConditions checks the conditions that select requests. They cannot use a policy's
// variables.
func (e expressions) validateMatchConditions(c *check.Checker, conditions []admissionv1.MatchCondition, path *field.Path) {
	c.MaxItems(path, len(conditions), maxMatchConditions)
	e.compiler = plainCompiler()
	seen := sets.New[string]()
	for i := range conditions {
		name, at := conditions[i].Name, path.Index(i)
		e.validateMatchCondition(c, &conditions[i], at)
		if name != "" && seen.Has(name) {
			c.Duplicate(at.Child("name"), name)
		}
		seen.Insert(name)
	}
}

func (e expressions) validateMatchCondition(c *check.Checker, condition *admissionv1.MatchCondition, path *field.Path) {
	if expression := strings.TrimSpace(condition.Expression); expression == "" {
		c.Required(path.Child("expression"), "")
	} else {
		e.compile(c, &matchconditions.MatchCondition{Expression: expression}, e.declared(), condition.Expression, path.Child("expression"))
	}
	if condition.Name == "" {
		c.Required(path.Child("name"), "")
		return
	}
	qualified(c, condition.Name, path.Child("name"))
}

func qualified(c *check.Checker, name string, path *field.Path) {
	for _, problem := range utilvalidation.IsQualifiedName(name) {
		c.Add(field.Invalid(path, name, problem).WithOrigin("format=qualified-name"))
	}
}

// validateVariables checks variables in order, because each may use the earlier ones.
func (e expressions) validateVariables(c *check.Checker, variables []admissionv1.Variable, path *field.Path) {
	for i := range variables {
		e.validateVariable(c, &variables[i], path.Index(i))
	}
}

func (e expressions) validateVariable(c *check.Checker, v *admissionv1.Variable, path *field.Path) {
	switch {
	case strings.TrimSpace(v.Name) == "":
		c.Required(path.Child("name"), "name is not specified")
	case !isIdentifier(v.Name):
		c.Invalid(path.Child("name"), v.Name, "must be a valid CEL identifier")
	}
	if strings.TrimSpace(v.Expression) == "" {
		c.Required(path.Child("expression"), "expression is not specified")
		return
	}
	composed, ok := e.compiler.(*plugincel.CompositedCompiler)
	if !ok {
		c.Add(field.InternalError(path, errors.New("variable composition is not allowed")))
		return
	}
	variable := &validating.Variable{Name: v.Name, Expression: v.Expression}
	result := composed.CompileAndStoreVariable(variable, e.declared(), e.environment(v.Expression))
	c.Expression(path.Child("expression"), v.Expression, result.Error)
}

// reserved are the reserved words of CEL.
var reserved = sets.New("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
	"if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while")

var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// isIdentifier reports whether the name is an identifier in CEL.
func isIdentifier(name string) bool { return identifier.MatchString(name) && !reserved.Has(name) }

// compilerFailed reports that k8s.io/apiserver could not create a compiler, which does not happen.
func compilerFailed(c *check.Checker, path *field.Path, err error) {
	c.Add(field.InternalError(path, fmt.Errorf("make a compiler of expressions: %w", err)))
}
