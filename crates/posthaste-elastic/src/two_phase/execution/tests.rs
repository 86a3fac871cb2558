use super::*;

/// Answers every request before this step as a correct store does.
fn answered_until(step: Step, mut execution: Execution) -> Execution {
    while execution.step() != step {
        let answers: Vec<_> = execution
            .requests()
            .into_iter()
            .map(correct_response)
            .collect();
        assert_eq!(execution.apply_answers(&answers), Progress::Next);
    }
    execution
}

fn correct_response(request: Request) -> Response {
    match request {
        Request::Read => Response::State(Some(State::Created)),
        Request::ReadMark(_) => Response::Mark(Fence(7)),
        _ => Response::Acknowledged,
    }
}

#[test]
fn a_transfer_without_faults_takes_six_round_trips_and_eight_requests() {
    let mut execution = Execution::for_new(2, 0);
    let mut result = Vec::new();
    loop {
        let requests = execution.requests();
        result.push((execution.step(), requests.len()));
        let answers: Vec<_> = requests.into_iter().map(correct_response).collect();
        match execution.apply_answers(&answers) {
            Progress::Next => {}
            end => {
                assert_eq!(end, Progress::Ended(State::Finished));
                break;
            }
        }
    }
    let expected = [
        (Step::ReadMark, 2),
        (Step::Begin, 1),
        (Step::Hold, 2),
        (Step::Commit, 1),
        (Step::Settle, 2),
        (Step::Finish, 1),
    ];
    assert_eq!(result, expected);
}

#[test]
fn steps_complete_when_every_request_is_acknowledged() {
    for other in [
        Response::Elsewhere,
        Response::Ambiguous,
        Response::Missing,
        Response::Rejected(Obstacle::Fenced),
    ] {
        for step in [Step::Begin, Step::Commit, Step::Settle, Step::Finish] {
            let mut execution = answered_until(step, Execution::for_new(2, 0));
            let mut answers = vec![Response::Acknowledged; execution.requests().len()];
            answers[0] = other;
            assert_eq!(
                execution.apply_answers(&answers),
                Progress::Again,
                "{step:?}"
            );
            assert_eq!(execution.step(), Step::Read);
        }
    }
    let mut execution = answered_until(Step::Settle, Execution::for_new(2, 0));
    assert_eq!(
        execution.apply_answers(&[Response::Acknowledged]),
        Progress::Again
    );
}

#[test]
fn permanent_refusals_abort_and_temporary_ones_retry() {
    let refused = |patience, obstacle| {
        let mut execution = answered_until(Step::Hold, Execution::for_new(2, patience));
        let progress =
            execution.apply_answers(&[Response::Acknowledged, Response::Rejected(obstacle)]);
        (progress, execution.step(), execution.reason())
    };
    for (obstacle, reason) in [
        (Obstacle::Insufficient, Reason::Insufficient),
        (Obstacle::TooLarge, Reason::TooLarge),
        (Obstacle::Busy, Reason::Busy),
    ] {
        let given_up = (Progress::Next, Step::Abandon, Some(reason));
        assert_eq!(refused(0, obstacle), given_up);
    }
    for (patience, obstacle) in [
        (1, Obstacle::Busy),
        (0, Obstacle::Full),
        (0, Obstacle::Fenced),
    ] {
        let again = (Progress::Again, Step::Read, None);
        assert_eq!(refused(patience, obstacle), again);
    }
}

#[test]
fn a_missing_answer_is_never_reported_as_nothing_written() {
    let missing = [Response::Mark(Fence(0)), Response::Missing];
    let mut execution = Execution::for_new(2, 0);
    assert_eq!(execution.apply_answers(&missing), Progress::Missing(1));
    let mut execution = answered_until(Step::Begin, Execution::for_new(2, 0));
    assert_eq!(
        execution.apply_answers(&[Response::Ambiguous]),
        Progress::Again
    );
    let absent = [Response::State(None)];
    assert_eq!(execution.apply_answers(&absent), Progress::Next);
    assert_eq!(execution.step(), Step::ReadMark);
    assert_eq!(execution.apply_answers(&missing), Progress::Again);
}
