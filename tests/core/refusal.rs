//! The table of how refusals are answered, as `tests/refusals.json` has it for all shells.

use leapgate::Cause;
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, DegradeGrade, DegradeRule, FlowRule, SystemLimit, SystemRule,
};
use std::rc::Rc;

fn cause(kind: &str, limit: Option<&str>) -> Cause {
    let limit = SystemLimit::ALL
        .into_iter()
        .find(|known| Some(known.as_str()) == limit);
    match (kind, limit) {
        ("flow", None) => Cause::Flow(Rc::new(FlowRule::new("a", 1.0).unwrap())),
        ("system", Some(limit)) => Cause::System(limit, Rc::new(SystemRule::new())),
        ("degrade", None) => {
            let grade = DegradeGrade::error_ratio(0.5).unwrap();
            Cause::Degrade(Rc::new(DegradeRule::new("a", grade, 1).unwrap()))
        }
        ("authority", None) => {
            let rule = AuthorityRule::new("a", "b", AuthorityStrategy::White);
            Cause::Authority(Rc::new(rule.unwrap()))
        }
        other => panic!("{other:?} is not a cause"),
    }
}

#[test]
fn each_refusal_is_answered_as_the_table_for_all_shells_says() {
    let table = include_str!("../refusals.json");
    let table: serde_json::Value = serde_json::from_str(table).unwrap();
    let mut system_limits = 0;
    for row in table.as_array().unwrap() {
        for limit in row["limits"].as_array().unwrap() {
            let kind = cause(row["cause"].as_str().unwrap(), limit.as_str()).kind();
            let answer = serde_json::json!({
                "cause": row["cause"], "limits": row["limits"], "status": kind.status(), "grpcStatus": kind.grpc_status(),
                "text": kind.text(), "title": kind.title(), "type": kind.problem_type(),
            });
            assert_eq!(&answer, row);
            system_limits += usize::from(row["cause"] == "system");
        }
    }
    assert_eq!(system_limits, SystemLimit::ALL.len());
}
