//! Several questions on one connection at once: sent one after the other without waiting, answered in order.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// The answers of all, in the order of the questions.
pub async fn together<T, F>(questions: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T>,
{
    let mut questions: Vec<Pin<Box<F>>> = questions.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<T>> = questions.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut open = false;
        for (question, answer) in questions.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match question.as_mut().poll(context) {
                    Poll::Ready(value) => *answer = Some(value),
                    Poll::Pending => open = true,
                }
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}
